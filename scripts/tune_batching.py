#!/usr/bin/env python3
"""Find the batching settings that answer the most calls within a latency target, for a model, on this machine.

    tune_batching.py ./my-model --payload texts.jsonl --target 'p99<=200ms'
    tune_batching.py ./my-model --payload samples/ --target 'p95<=1s' --budget 20m --image torchserve-byoc:cpu

Searches batch_size, max_batch_delay, the token budget, and workers × threads: servers with different settings are started here
and put under a rising number of clients, in interleaved rounds. Half of the payloads are held out, and decide at the end whether
the winner really beats the defaults. Run it on a machine like the one that will serve, with nothing else running.
Writes OUTPUT.json, OUTPUT.html with the Pareto front, OUTPUT.properties (lines for config.properties) and OUTPUT.env (variables).
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import checkout

if __name__ == "__main__":
    checkout.enter(("aiohttp", "hdrh", "jinja2", "numpy", "psutil", "rich", "uvloop", "yaml"))

from rich.console import Console

sys.path.insert(0, str(checkout.CHECKOUT / "handler"))

from batch_handler.resources import available
from loading import payloads, results
from loading.conditions import duration_ms
from loading.errors import LoadTestError
from loading.latencies import PERCENTILES
from tuning import outcome, space
from tuning.measuring import LADDER, Measuring
from tuning.outcome import HeldOut
from tuning.search import Found, Search, exhaustive
from tuning.servers import Servers
from tuning.trial import Trial

STOPPED = 128 + signal.SIGINT
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
HELD_OUT_ROUNDS = 3


def main() -> int:
    """The command line: 0 when there is a choice, 1 with one sentence otherwise, 2 for wrong arguments, 130 when stopped."""
    options = parse_arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        tune(options, Console(stderr=True))
    except LoadTestError as error:
        print(f"tune_batching: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("tune_batching: stopped before there was a choice: nothing was written", file=sys.stderr)
        return STOPPED
    return 0


def parse_arguments() -> argparse.Namespace:
    """Flags and their defaults."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip(), formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, metavar="MODEL", help="a model directory, as /opt/ml/model")
    parser.add_argument(
        "--payload", type=Path, required=True, metavar="PATH", help="a .jsonl with one body per line, or a directory"
    )
    parser.add_argument("--target", type=target, required=True, metavar="'p99<=200ms'", help="the latency to keep")
    parser.add_argument("--budget", type=budget, default=900.0, metavar="TIME", help="for the search, 15m or 900s (default: 15m)")
    parser.add_argument("--content-type", metavar="TYPE", help="of all bodies (default: by the file's suffix; application/json)")
    parser.add_argument("--lines-per-request", type=int, default=1, metavar="N", help="so many lines of a .jsonl make one body")
    parser.add_argument("--image", help="serve from this image (default: from this checkout)")
    parser.add_argument("--setting", action="append", default=[], type=setting, metavar="NAME=VALUE", help="of every server")
    parser.add_argument("--seconds", type=float, default=2.0, help="measured per number of clients (default: %(default)g)")
    parser.add_argument("--warm-up", type=float, default=0.5, help="seconds before that (default: %(default)g)")
    parser.add_argument("--batch-sizes", type=numbers, default=space.BATCH_SIZES, metavar="LIST")
    parser.add_argument("--delays", type=numbers, default=space.DELAYS_MS, metavar="LIST", help="in ms")
    parser.add_argument("--token-budgets", type=numbers, default=space.TOKEN_BUDGETS, metavar="LIST")
    parser.add_argument("--workers", type=numbers, metavar="LIST", help="that divide the CPUs (default: all that do)")
    parser.add_argument("--keep", type=int, metavar="N", help="servers that stay up at once (default: as memory allows)")
    parser.add_argument(
        "--compare-grid", action="store_true", help="measure every combination too, and show what that would choose"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--output", type=Path, default=Path("tuning"), help="the files' name without a suffix (default: %(default)s)"
    )
    return parser.parse_args()


def tune(options: argparse.Namespace, console: Console) -> None:
    """Search, hold the winner against the default on what was held out, write, and say so. Raises LoadTestError."""
    if not options.model.is_dir():
        raise LoadTestError(f"{options.model} is no directory: name what would be /opt/ml/model")
    sent, held_back = halves(payloads.read(options.payload, options.content_type, options.lines_per_request), options.payload)
    searched, usual = searched_space(options)
    started = time.monotonic()
    percentile, target_ms = options.target
    with Servers(
        options.model, dict(options.setting), options.image, os.environ.get("DOCKER", "docker"), options.keep
    ) as servers:
        measuring = Measuring(servers, sent, percentile, target_ms, options.seconds, options.warm_up)

        def measured(candidate: space.Candidate) -> Trial:
            trial = measuring.trial(candidate)
            if measuring.ladder is LADDER:
                if trial.failure:
                    raise LoadTestError(f"the defaults cannot be measured: {trial.failure}")
                measuring.look_around(trial)
            say(console, trial, target_ms, time.monotonic() - started)
            return trial

        found = Search(searched, usual, measured, target_ms, options.budget, time.monotonic, console.print).run(options.seed)
        rivals = [found.winner, usual]
        if options.compare_grid:
            rivals.append(exhaustive(searched, measured, target_ms))
        measuring.payloads = held_back
        console.print(f"{HELD_OUT_ROUNDS} rounds on {len(held_back):,} held-out payloads")
        held_out = rounds(list(dict.fromkeys(rivals)), measured, target_ms)
    conclude(options, found, held_out, len(sent), time.monotonic() - started, console)


def rounds(candidates: list[space.Candidate], measured: Callable[[space.Candidate], Trial], target_ms: float) -> HeldOut:
    """Interleaved rounds."""
    capacities: dict[space.Candidate, list[float]] = {one: [] for one in candidates}
    for _ in range(HELD_OUT_ROUNDS):
        for one in candidates:
            capacities[one].append(measured(one).capacity(target_ms))
    return HeldOut(capacities)


def conclude(options: argparse.Namespace, found: Found, held_out: HeldOut, sent: int, seconds: float, console: Console) -> None:
    """Write the four files and say what was found. Raises LoadTestError."""
    _, target_ms = options.target
    choice = outcome.settled(found, held_out)
    asked: dict[str, Any] = {
        "model": str(options.model),
        "target": shown_target(options.target),
        "target_ms": target_ms,
        "payloads": sent,
        "seconds": round(seconds),
        "machine": results.machine(),
    }
    said = outcome.sentence(found, held_out, choice, str(asked["target"]))
    results.write_json(options.output.with_suffix(".json"), outcome.as_result(found, held_out, asked, choice))
    results.write(options.output.with_suffix(".html"), outcome.render(found, held_out, choice, asked, said))
    results.write(options.output.with_suffix(".properties"), "\n".join(choice.properties()) + "\n")
    variables = "".join(f"{name}={value}\n" for name, value in choice.environment().items())
    results.write(options.output.with_suffix(".env"), variables)
    console.print(f"\n{said}", highlight=False, soft_wrap=True)
    print(variables, end="")
    console.print(f"written: {options.output}.json, .html, .properties, .env", highlight=False, soft_wrap=True)


def say(console: Console, trial: Trial, target_ms: float, seconds: float) -> None:
    """One line per trial."""
    capacity = trial.capacity(target_ms)
    result = trial.failure or (f"{capacity:,.1f} calls/s" if capacity >= 0 else f"{1 - capacity:,.1f} times too slow")
    console.print(f"{seconds:6.0f} s  {trial.candidate}: {result}", highlight=False, soft_wrap=True)


def halves(found: list[payloads.Payload], path: Path) -> tuple[list[payloads.Payload], list[payloads.Payload]]:
    """Every second payload is held out. Raises LoadTestError when there is only one."""
    if len(found) < 2:
        raise LoadTestError(f"{path} holds one payload, and half of them are held out: give at least two")
    return found[::2], found[1::2]


def searched_space(options: argparse.Namespace) -> tuple[space.Space, space.Candidate]:
    """The grid, and the default on this machine. Raises LoadTestError."""
    cpus = available().whole_cpus
    pairs = space.worker_pairs(cpus)
    if options.workers:
        pairs = tuple(pair for pair in pairs if pair[0] in options.workers)
        if not pairs:
            raise LoadTestError(f"none of {options.workers} workers share {cpus} CPUs evenly: leave --workers out")
    return space.Space(options.batch_sizes, options.delays, options.token_budgets, pairs), space.default(cpus)


def target(text: str) -> tuple[float, float]:
    """``p99<=200ms`` as a percentile and milliseconds."""
    found = re.fullmatch(r"\s*(p[0-9.]+)\s*(?:<=?)\s*(\S+)\s*", text)
    if not found or found[1] not in PERCENTILES:
        raise argparse.ArgumentTypeError(f"{text!r} is no target: write it like p99<=200ms, with {', '.join(PERCENTILES)}")
    try:
        return PERCENTILES[found[1]], duration_ms(found[2])
    except LoadTestError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def shown_target(asked: tuple[float, float]) -> str:
    """The same in words."""
    return f"p{asked[0]:g} of {asked[1]:,.4g} ms"


def budget(text: str) -> float:
    """``15m`` in seconds."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh])", text.strip())
    if not found or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: write it like 900s, 15m or 1h")
    return float(found[1]) * UNITS[found[2]]


def numbers(text: str) -> tuple[int, ...]:
    """``4,8,16``, in rising order."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and int(word) for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of whole numbers of at least 1")
    return tuple(sorted({int(word) for word in words}))


def setting(text: str) -> tuple[str, str]:
    """``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is no setting: write it like BYOC_ENGINE=packed")
    return name, value


if __name__ == "__main__":
    sys.exit(main())
