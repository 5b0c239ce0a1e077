"""`python -m fuzz [--seconds N] [--processes N] [--keep] [TARGET...]`: exits with 1 when an input broke a target."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fuzz import campaign
from fuzz.targets import TARGETS


def main() -> int:
    """Run the campaign; print a line for each target as it ends, then the table, then what broke."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=campaign.__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"one of {', '.join(TARGETS)}; all of them by default")
    parser.add_argument("--seconds", type=int, default=20, help="for each target (default: 20)")
    parser.add_argument("--processes", type=int, default=2, help="targets at a time (default: 2)")
    parser.add_argument("--found", type=Path, default=Path("build/fuzz"), help="where new inputs and breaking ones go")
    parser.add_argument("--keep", action="store_true", help="then add what reached something new to tests/fuzz/corpus")
    arguments = parser.parse_args()
    names = arguments.targets or list(TARGETS)
    if unknown := [name for name in names if name not in TARGETS]:
        parser.error(f"{unknown[0]} is no target: name some of {', '.join(TARGETS)}")
    outcomes = []
    for outcome in campaign.run(names, arguments.seconds, arguments.processes, arguments.found):
        outcomes.append(outcome)
        print(f"{len(outcomes)}/{len(names)} {outcome.name} ended after {outcome.seconds:.0f} s", flush=True)
        if arguments.keep and not outcome.said:
            print(f"{campaign.keep(outcome.name, arguments.found):,} inputs kept", flush=True)
    broken = [outcome for outcome in outcomes if outcome.said]
    print(campaign.HEADING, *(outcome.row() for outcome in outcomes), sep="\n")
    executions = sum(outcome.executions for outcome in outcomes)
    print(f"{executions:,} executions of {len(names)} targets, {len(broken)} broken", flush=True)
    for outcome in broken:
        print(outcome.said, outcome.again(), sep="\n", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
