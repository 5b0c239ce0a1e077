"""Asks for the known vulnerabilities of every locked package; pip-audit does the asking.

Exit code 1: there are some. 2: the service did not know packages, or did not answer: then nothing is shown to be clean.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCKED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s+;]+)", re.MULTILINE)
SHOWN = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Audit the locks that are named, else all of the images', the scripts' and the tests'."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("locks", nargs="*", type=Path, help="lock files (default: all)")
    parser.add_argument("--service", choices=("pypi", "osv"), default="pypi", help="who is asked (default: pypi)")
    given = parser.parse_args(arguments)
    wanted = given.locks or all_locks()
    packages = sorted({pair for lock in wanted for pair in LOCKED.findall(lock.read_text("utf-8"))})
    if not packages:
        print("no locked package in these files", file=sys.stderr)
        return 2
    # One at a time: pip-audit takes a file for an environment, where a name has one version.
    answers = [answer for version in _sets(packages) for answer in ask(version, given.service)]
    return report(answers)


def all_locks() -> list[Path]:
    """The lock of every image, of the scripts and of the tests; not those of the benchmarks' peers."""
    stems = [*(ROOT / "docker" / "requirements").glob("*.in"), *(ROOT / "scripts").rglob("*.in"), *(ROOT / "tests").rglob("*.in")]
    return sorted(lock for stem in stems if (lock := stem.with_suffix(".txt")).exists())


def ask(packages: Sequence[tuple[str, str]], service: str) -> list[dict[str, Any]]:
    """What the service says of each: ``name``, ``version`` and ``vulns``, or ``skip_reason``: all when it does not answer."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.writelines(f"{name}=={version}\n" for name, version in packages)
        file.flush()
        command = [
            sys.executable,
            "-m",
            "pip_audit",
            "--no-deps",
            "--disable-pip",
            "--progress-spinner",
            "off",
            "--format",
            "json",
        ]
        done = subprocess.run(
            [*command, "--vulnerability-service", service, "--requirement", file.name],
            capture_output=True,
            text=True,
            check=False,
        )
    try:
        found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except ValueError:
        reason = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        return [{"name": name, "version": version, "skip_reason": reason} for name, version in packages]
    return found


def report(answers: Sequence[dict[str, Any]]) -> int:
    """Print what was found; the exit code."""
    unknown = [answer for answer in answers if "skip_reason" in answer]
    flawed = [answer for answer in answers if answer.get("vulns")]
    for answer in flawed:
        for flaw in answer["vulns"]:
            fixed = ", ".join(flaw["fix_versions"]) or "no version yet"
            print(f"{answer['name']} {answer['version']}: {' '.join([flaw['id'], *flaw['aliases']])}, fixed in {fixed}")
    print(f"{len(answers)} locked packages: {len(answers) - len(unknown)} asked about, {len(flawed)} with known vulnerabilities")
    if unknown:
        shown = ", ".join(str(answer["name"]) for answer in unknown[:SHOWN])
        print(
            f"{len(unknown)} packages could not be asked about ({shown}{', …' if len(unknown) > SHOWN else ''}): "
            f"{unknown[0]['skip_reason']}. Run this where the vulnerability service answers, or with --service osv.",
            file=sys.stderr,
        )
    if flawed:
        return 1
    return 2 if unknown else 0


def _sets(packages: Sequence[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """The pairs dealt out so that no set holds a name twice."""
    sets: list[list[tuple[str, str]]] = []
    for name, version in packages:
        free = next((each for each in sets if all(name != other for other, _ in each)), None)
        if free is None:
            sets.append(free := [])
        free.append((name, version))
    return sets


if __name__ == "__main__":
    sys.exit(main())
