"""What figures were taken on, and when: the CPU and its cores, the kernel, the version of the code."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.models import ROOT


def machine() -> dict[str, Any]:
    """Plain values for the results."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "began": datetime.now(UTC).isoformat(timespec="minutes"),
        "revision": _revision(),
    }


def _revision() -> str:
    described = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude", "*"]
    run = subprocess.run(described, capture_output=True, text=True, check=False)
    return run.stdout.strip() or "unknown"
