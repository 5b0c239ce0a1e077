"""What this container may use, and what of its memory is free: from the cgroup (v1 and v2), never the host's count.

Sources: the kernel's cgroup-v2 documentation (cpu.max, memory.max, memory.stat) and its v1 controllers (cpu.cfs_quota_us,
memory.limit_in_bytes, memory.stat); proc(5) for meminfo.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")
UNLIMITED_V1 = 1 << 60


@dataclass(frozen=True, slots=True)
class Resources:
    """``cpus`` may be a fraction (a quota of half a CPU is 0.5); ``memory_bytes`` is None only where nothing tells."""

    cpus: float
    memory_bytes: int | None
    memory_is_limited: bool

    @property
    def whole_cpus(self) -> int:
        """CPUs to give one busy thread each: at least one."""
        return max(1, int(self.cpus))


def available(root: Path = CGROUP) -> Resources:
    """Read the limits in force: the smallest of the cgroup's, the scheduler's affinity and the machine's."""
    cpus = float(len(os.sched_getaffinity(0)))
    quota = _cpu_quota(root)
    limit = _memory_limit(root)
    physical = _physical_memory()
    known = [amount for amount in (limit, physical) if amount is not None]
    return Resources(
        cpus=min(cpus, quota) if quota is not None else cpus,
        memory_bytes=min(known) if known else None,
        memory_is_limited=limit is not None and (physical is None or limit < physical),
    )


def free_memory(root: Path = CGROUP, meminfo: Path = MEMINFO) -> int | None:
    """Bytes that processes of this container can still take: the less of what the cgroup and the machine leave.

    Files that were read and are mapped by nobody give way to them, and so count as free. None where nothing tells.
    """
    known = [amount for amount in (_free_in_cgroup(root), _free_in_machine(meminfo)) if amount is not None]
    return max(0, min(known)) if known else None


def _free_in_cgroup(root: Path) -> int | None:
    limit = _memory_limit(root)
    if limit is None:
        return None
    used = _words(root / "memory.current") or _words(root / "memory" / "memory.usage_in_bytes")
    if not used:
        return None
    return limit - int(used[0]) + _reclaimable(root)


def _reclaimable(root: Path) -> int:
    """The page cache but for what is mapped; version 1 counts child groups under names that begin with total_."""
    words = _words(root / "memory.stat") or _words(root / "memory" / "memory.stat")
    counts = dict(zip(words[::2], map(int, words[1::2]), strict=False))

    def count(name: str, older: str) -> int:
        return counts.get(f"total_{older}", counts.get(name, 0))

    cached = count("active_file", "active_file") + count("inactive_file", "inactive_file")
    return max(0, cached - count("file_mapped", "mapped_file"))


def _free_in_machine(meminfo: Path) -> int | None:
    words = _words(meminfo)
    return int(words[words.index("MemAvailable:") + 1]) * 1024 if "MemAvailable:" in words else None


def _cpu_quota(root: Path) -> float | None:
    v2 = _words(root / "cpu.max")
    if len(v2) == 2 and v2[0] != "max":
        return int(v2[0]) / int(v2[1])
    quota, period = (_words(root / "cpu" / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    if quota and period and int(quota[0]) > 0:
        return int(quota[0]) / int(period[0])
    return None


def _memory_limit(root: Path) -> int | None:
    v2 = _words(root / "memory.max")
    if v2:
        return None if v2[0] == "max" else int(v2[0])
    v1 = _words(root / "memory" / "memory.limit_in_bytes")
    return int(v1[0]) if v1 and int(v1[0]) < UNLIMITED_V1 else None


def _physical_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _words(path: Path) -> list[str]:
    try:
        return path.read_text("ascii").split()
    except OSError:
        return []
