#!/usr/bin/env python3
"""Find out what an endpoint can take: throughput and latency against load, errors by kind, and what gave out first.

    load_test.py http://127.0.0.1:8080 --payload texts.jsonl                a sweep over 1 to 64 clients
    load_test.py my-endpoint --payload samples/ --clients 8,16 --region eu-west-1
    load_test.py http://127.0.0.1:8080 --payload texts.jsonl --clients 1,8,32 --rate 50%,80%
    load_test.py http://127.0.0.1:8080 --payload texts.jsonl --clients 8 --fail-if 'p99>200ms'    in CI: exit code 1

Clients are a closed loop: each calls again when it is answered. --rate is an open one: calls arrive at random moments (Poisson)
whoever still waits, and their latency counts from that moment. A .jsonl file holds one body per line; a directory is a mix of
files, weighted by its weights.yaml (pattern: weight); the answer to NAME must equal NAME.expected where there is one.
Writes a JSON file and an HTML report. Ctrl-C ends the test and keeps what was measured.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import checkout

if __name__ == "__main__":
    checkout.enter(("aiohttp", "boto3", "hdrh", "jinja2", "prometheus_client", "psutil", "rich", "uvloop", "yaml"))

from rich.console import Console

from loading import conditions, payloads, report, results, saturation, target
from loading.arrivals import Step
from loading.caller import Plan
from loading.errors import LoadTestError
from loading.generators import Generators
from loading.results import Run
from loading.sweep import first_call, measure_ceiling, sweep
from loading.table import LiveTable

FAILED = 1
STOPPED = 128 + signal.SIGINT
CLIENTS = "1,2,4,8,16,32,64"


def main() -> int:
    """The command line: 0, or 1 when a limit was not kept or nothing could be done, 2 for wrong arguments, 130 when stopped."""
    options = parse_arguments()
    halt = threading.Event()

    def interrupted(*_: object) -> None:
        """The first Ctrl-C ends the test in order, a second one at once."""
        halt.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, interrupted)
    console = Console(stderr=True)
    try:
        plan = planned(options)
        run = tested(options, plan, console, halt.is_set)
        failed = conclude(options, run, console)
    except LoadTestError as error:
        print(f"load_test: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return STOPPED
    return STOPPED if run.stopped else FAILED if failed else 0


def parse_arguments() -> argparse.Namespace:
    """Flags and their defaults."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip(), formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", metavar="TARGET", help="http://host:port, a whole URL, or the name of a SageMaker endpoint")
    parser.add_argument("--payload", type=Path, required=True, metavar="PATH", help="what to send: a file or a directory")
    sent = parser.add_argument_group("what is sent")
    sent.add_argument("--content-type", metavar="TYPE", help="of all bodies (default: by the file's suffix; application/json)")
    sent.add_argument("--accept", metavar="TYPE", help="the Accept header")
    sent.add_argument("--header", action="append", default=[], type=header, metavar="'NAME: VALUE'", help="repeatable")
    sent.add_argument("--lines-per-request", type=count, default=1, metavar="N", help="so many lines of a .jsonl make one body")
    sent.add_argument("--expect", metavar="REGEX", help="good answers contain this")
    load = parser.add_argument_group("load")
    load.add_argument("--clients", type=counts, metavar="LIST", help=f"closed loops (default: {CLIENTS}; none with --rate 100)")
    load.add_argument("--rate", type=rates, default=[], metavar="LIST", help="open loops in calls/s, or %% of the sweep's best")
    load.add_argument("--seconds", type=positive, default=10.0, help="measured per step (default: %(default)g)")
    load.add_argument("--warm-up", type=zero_or_more, default=2.0, help="seconds before that (default: %(default)g)")
    load.add_argument("--timeout", type=positive, default=60.0, help="seconds for one call (default: %(default)g)")
    load.add_argument("--processes", type=count, default=1, help="that make the calls (default: %(default)s)")
    load.add_argument("--seed", type=int, default=1, help="of the mix and the arrivals (default: %(default)s)")
    limits = parser.add_argument_group("limits")
    limits.add_argument("--max-error-share", default="1%", metavar="SHARE", help="more failed calls fail the run (default: 1%%)")
    limits.add_argument("--fail-if", action="append", default=[], metavar="CONDITION", help="'p99>200ms' in any step; repeatable")
    limits.add_argument("--target-p99", metavar="TIME", help="max_requests_per_s is the best of the steps within it, 200ms say")
    place = parser.add_argument_group("endpoint and files")
    place.add_argument("--region", help="of the endpoint (default: AWS_DEFAULT_REGION or the profile's)")
    place.add_argument("--variant", metavar="NAME", help="call this production variant only")
    place.add_argument("--inference-component", metavar="NAME", help="call this inference component")
    place.add_argument("--output", type=Path, default=Path("load_test.json"), metavar="FILE", help="(default: %(default)s)")
    place.add_argument("--report", type=Path, metavar="FILE", help="(default: the output's name with .html)")
    return parser.parse_args()


def planned(options: argparse.Namespace) -> Plan:
    """What all steps have in common. Raises LoadTestError."""
    headers = list(options.header)
    if options.variant:
        headers.append(("X-Amzn-SageMaker-Target-Variant", options.variant))
    if options.inference_component:
        headers.append(("X-Amzn-SageMaker-Inference-Component", options.inference_component))
    conditions.share(options.max_error_share)
    for text in options.fail_if:
        conditions.parse(text)
    fewest = min(options.clients or [options.processes])
    if fewest < options.processes:
        raise LoadTestError(f"{fewest} clients cannot be split over {options.processes} processes: lower --processes")
    return Plan(
        target=target.find(options.target, headers, options.region),
        payloads=tuple(payloads.read(options.payload, options.content_type, options.lines_per_request)),
        timeout=options.timeout,
        accept=options.accept,
        expected=options.expect,
        seed=options.seed,
    )


def tested(options: argparse.Namespace, plan: Plan, console: Console, halted: Callable[[], bool]) -> Run:
    """The whole run: a first call, the sweep, the rates, and the generator's own ceiling. Raises LoadTestError."""
    answer_bytes = first_call(plan)
    sizes = [len(payload.body) for payload in plan.payloads]
    described = {"path": str(options.payload), "count": len(sizes), "mean_bytes": round(sum(sizes) / len(sizes))}
    run = Run(plan.target.name, plan.target.local, described, options.processes)
    with Generators(plan, options.processes) as generators, LiveTable(console) as screen:
        timing = {"seconds": options.seconds, "warm_up": options.warm_up}
        sweep(generators, run, plan, [Step(clients=number, **timing) for number in clients(options)], screen, halted)
        best = max((one.requests_per_s for one in run.sweep), default=0.0)
        open_loops = [Step(rate=share * best if relative else share, **timing) for share, relative in options.rate]
        sweep(generators, run, plan, [step for step in open_loops if step.rate > 0], screen, halted)
    if run.steps and not run.stopped:
        measure_ceiling(run, plan, answer_bytes)
    return run


def clients(options: argparse.Namespace) -> list[int]:
    """The closed loops: what was asked; the default where nothing was, unless all that was asked are rates in calls/s."""
    if options.clients:
        return list(options.clients)
    absolute = options.rate and not any(relative for _, relative in options.rate)
    return [] if absolute else [number for number in counts(CLIENTS) if number >= options.processes]


def conclude(options: argparse.Namespace, run: Run, console: Console) -> list[str]:
    """Write the files and say what was found; the reasons why the run fails, if any. Raises LoadTestError."""
    if not run.steps:
        raise LoadTestError("nothing was measured: let it run beyond the warm-up")
    allowed = conditions.share(options.max_error_share)
    longest = conditions.duration_ms(options.target_p99) if options.target_p99 else None
    best = run.best(allowed) if longest is None else run.best(allowed, longest)
    failed = conditions.verdicts(run.steps, [conditions.parse(text) for text in options.fail_if], allowed)
    sentence = saturation.sentence(run, allowed)
    limits = {"max_error_share": allowed, "target_p99_ms": longest, "fail_if": options.fail_if}
    result = results.as_json(run, sentence, best, limits, failed)
    written = options.report or options.output.with_suffix(".html")
    results.write_json(options.output, result)
    results.write(written, report.render(result))
    console.print(f"\n{sentence}", highlight=False, soft_wrap=True)
    say_errors(run, console)
    within = f" with p99 within {longest:g} ms" if longest else ""
    console.print(f"at most {best:,.1f} calls/s{within} · written: {options.output}, {written}", highlight=False, soft_wrap=True)
    if run.stopped:
        console.print("stopped early: this is what was measured until then", highlight=False)
    for reason in failed:
        print(f"load_test: failed, {reason}", file=sys.stderr)
    return failed


def say_errors(run: Run, console: Console) -> None:
    """The kinds of errors with an example of each."""
    kinds: dict[str, tuple[int, str]] = {}
    for one in run.steps:
        for kind, number in one.errors.items():
            known, sample = kinds.get(kind, (0, one.samples.get(kind, "")))
            kinds[kind] = (known + number, sample)
    for kind, (number, sample) in sorted(kinds.items()):
        console.print(f"{number:,} × {kind}, such as {sample}", highlight=False, markup=False, soft_wrap=True)


def header(text: str) -> tuple[str, str]:
    """``Name: value``."""
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or "\n" in text:
        raise argparse.ArgumentTypeError(f"{text!r} is no header: write it like 'Name: value'")
    return name.strip(), value.strip()


def count(text: str) -> int:
    """A whole number of at least 1."""
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def counts(text: str) -> list[int]:
    """``1,8,32``, put in order."""
    return sorted({count(word.strip()) for word in text.split(",")})


def rates(text: str) -> list[tuple[float, bool]]:
    """``100,50%``: each with whether it is a share of the best throughput."""
    return [(positive(word.strip().rstrip("%")) / (100 if "%" in word else 1), "%" in word) for word in text.split(",")]


def positive(text: str) -> float:
    """A number over 0."""
    if not (value := zero_or_more(text)):
        raise argparse.ArgumentTypeError(f"{text!r} must be more than 0")
    return value


def zero_or_more(text: str) -> float:
    """A number of at least 0."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return value


if __name__ == "__main__":
    sys.exit(main())
