"""A virtual environment per peer from its own lock, under build/bench/venv. One that cannot be made is named, with the reason.

python -m benchmarks.environments flask litserve      make these (all without names)
python -m benchmarks.environments --lock flask        renew a lock, hashes included, from its requirements.in
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
        _install(folder, ["--no-deps", "--require-hashes", "-r", str(lock)])
        stamp.write_text(wanted)
    return folder / "bin" / "python"


def lock(name: str) -> None:
    """Resolve requirements.in afresh and write down every version with the hash of the file that was installed."""
    folder, requirements = BENCH / "venv" / name, _requirements(name)
    with tempfile.TemporaryDirectory(prefix="lock-") as scratch:
        report = Path(scratch) / "report.json"
        _install(folder, ["--report", str(report), "-r", str(requirements)])
        requirements.with_suffix(".txt").write_text(locked(json.loads(report.read_text("utf-8"))), "utf-8")


def locked(report: Mapping[str, Any]) -> str:
    """pip's installation report as requirements with hashes, by name. Raises KeyError for what came from no file."""
    lines = []
    for item in report["install"]:
        digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
        lines.append(f"{item['metadata']['name']}=={item['metadata']['version']} \\\n    --hash=sha256:{digest}\n")
    return "".join(sorted(lines, key=str.lower))


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
