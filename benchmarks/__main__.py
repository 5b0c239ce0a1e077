"""Measure the product, its peers and the limits in interleaved rounds.

    python -m benchmarks [--quick | --standard] [--model minilm|bert-base|translation] [--systems NAME …]
                         [--workloads NAME …] [--rounds N] [--seconds N]

In each round every system is started, checked, measured and stopped once, alone on the machine; the limits are measured at
the round's start and end. Results go to build/bench/ after each system, so that an interrupted run is not lost.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tokenizers import Tokenizer

from benchmarks import environments, page, report, texts
from benchmarks.models import BENCH, MODELS, Model, prepare
from benchmarks.plan import FULL, QUICK_PLAN, STANDARD_PLAN, Plan, for_model
from benchmarks.run import WORKLOADS, Run
from benchmarks.systems import SYSTEMS

TEXTS, SEED = 2_048, 5
OTHER_TEXTS, OTHER_SEED = 256, 6
"""Texts that are never measured, for exports that round."""
STOPPED = 128 + signal.SIGINT


def main() -> int:
    """The command line: measure, then write the table, the plots and the page."""
    options = _arguments()
    (BENCH / "models").mkdir(parents=True, exist_ok=True)
    # Ended from outside, the server that runs is still stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    model = MODELS[options.model]
    records, other = _texts(model, TEXTS, SEED), _texts(model, OTHER_TEXTS, OTHER_SEED)
    prepare(model)
    (BENCH / "models" / f"{model.name}.texts.json").write_text(json.dumps(records), "utf-8")
    output = BENCH / ("results.json" if model.name == "minilm" else f"results-{model.name}.json")
    run = Run(model, _plan(options), records, other, output)
    try:
        run.measure()
    except KeyboardInterrupt:
        print(f"\nstopped; what was measured before is in {output}", file=sys.stderr)
        return STOPPED
    table, short = (output.with_name(output.name.replace("results", name)).with_suffix(".md") for name in ("table", "readme"))
    table.write_text(report.markdown(run.seen), "utf-8")
    short.write_text(report.for_readme(run.seen), "utf-8")
    print(f"\n{table.read_text('utf-8')}\nwritten: {output}, {table}, {short}")
    drawn = _plots(output)
    print(f"written: {page.write(BENCH)}")
    return drawn


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="about five minutes: the product, two peers, few points")
    size.add_argument("--standard", action="store_true", help="about 25 minutes: enough to judge every goal; two rounds")
    parser.add_argument("--model", choices=list(MODELS), default="minilm")
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), metavar="NAME", help="; ".join(SYSTEMS))
    parser.add_argument(
        "--workloads", nargs="*", choices=list(WORKLOADS), help="loads that need no model; nothing behind it: none"
    )
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="per point")
    return parser.parse_args()


def _plan(options: argparse.Namespace) -> Plan:
    chosen = for_model(QUICK_PLAN if options.quick else STANDARD_PLAN if options.standard else FULL, options.model)
    names = ("systems", "rounds", "seconds", "workloads")
    return replace(chosen, **{name: value for name in names if (value := getattr(options, name)) is not None})


def _texts(model: Model, count: int, seed: int) -> list[str]:
    """Texts of the measurement's lengths, as long as the small encoder's tokeniser counts them."""
    tokenizer = Tokenizer.from_file(str(prepare(MODELS["minilm"]) / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def tokens(words: Sequence[str]) -> list[int]:
        return [len(encoding.ids) for encoding in tokenizer.encode_batch(list(words), add_special_tokens=False)]

    return texts.texts(texts.lengths(count, seed, model.longest), tokens, seed)


def _plots(measured: Path) -> int:
    """The plots are drawn in an environment of their own, where matplotlib is."""
    try:
        python = environments.make("report")
    except environments.InstallError as fault:
        print(f"no plots: {fault}", file=sys.stderr)
        return 1
    return subprocess.run([str(python), "-m", "benchmarks.plots", str(measured)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
