"""A virtual environment per peer from its own lock, under build/bench/venv. One that cannot be made is named, with the reason.

python -m benchmarks.environments flask litserve      make these (all without names)
python -m benchmarks.environments --lock flask        renew a lock from its requirements.in
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.models import BENCH, ROOT

PEERS = ROOT / "benchmarks" / "peers"
REPORT = ROOT / "benchmarks"
"""benchmarks/requirements.txt is for the plots."""


class InstallError(Exception):
    """What pip said last."""


def make(name: str) -> Path:
    """The environment's Python, installed when its lock has changed. Raises InstallError."""
    folder, lock = BENCH / "venv" / name, _requirements(name).with_suffix(".txt")
    stamp, wanted = folder / "lock.sha256", hashlib.sha256(lock.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        # The lock is a complete list: no dependency is looked for.
        _install(folder, ["--no-deps", "-r", str(lock)])
        stamp.write_text(wanted)
    return folder / "bin" / "python"


def lock(name: str) -> None:
    """Resolve requirements.in afresh and write down every version."""
    folder, requirements = BENCH / "venv" / name, _requirements(name)
    _install(folder, ["-r", str(requirements)])
    _freeze(folder, requirements)


def _freeze(folder: Path, requirements: Path) -> None:
    command = [str(folder / "bin" / "pip"), "--disable-pip-version-check", "freeze", "--all", "--exclude", "pip"]
    frozen = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = sorted((line for line in frozen.splitlines() if line and " @ " not in line), key=str.lower)
    torch = "torch==2.13.0+cpu\n" if "torch @ " in frozen else ""
    requirements.with_suffix(".txt").write_text(torch + "\n".join(lines) + "\n", "utf-8")


def _requirements(name: str) -> Path:
    return (REPORT if name == "report" else PEERS / name) / "requirements.in"


def _install(folder: Path, options: Sequence[str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    found = ["--find-links", str(ROOT / "docker" / "wheels")]
    for command in (["python3.11", "-m", "venv", str(folder)], [*pip, *found, *options]):
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            raise InstallError((run.stderr or run.stdout).strip().splitlines()[-1][:300])


def main() -> int:
    """Make or lock environments; 1 when one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    everything = [*sorted(folder.parent.name for folder in PEERS.glob("*/requirements.in")), "report"]
    parser.add_argument("names", nargs="*", default=everything)
    parser.add_argument("--lock", action="store_true")
    options = parser.parse_args()
    failed = 0
    for name in options.names:
        try:
            print(f"{name}: {'locking' if options.lock else 'installing'}", flush=True)
            lock(name) if options.lock else make(name)
        except InstallError as fault:
            failed = 1
            print(f"{name}: {fault}", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main())
