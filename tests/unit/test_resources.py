"""CPUs and memory from the cgroup's files, version 1 and 2."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from batch_handler.resources import available

HOST_CPUS = len(os.sched_getaffinity(0))
HOST_MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def files(root: Path, **contents: str) -> Path:
    for name, text in contents.items():
        path = root / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", "ascii")
    return root


def test_version_2_quota_and_limit_are_read(tmp_path: Path) -> None:
    found = available(files(tmp_path, cpu_DOT_max="50000 100000", memory_DOT_max="104857600"))
    assert found.cpus == 0.5
    assert found.whole_cpus == 1
    assert found.memory_bytes == 104_857_600
    assert found.memory_is_limited


def test_version_2_without_limits_gives_the_machines_own(tmp_path: Path) -> None:
    found = available(files(tmp_path, cpu_DOT_max="max 100000", memory_DOT_max="max"))
    assert (found.cpus, found.memory_bytes, found.memory_is_limited) == (HOST_CPUS, HOST_MEMORY, False)


def test_version_1_quota_and_limit_are_read(tmp_path: Path) -> None:
    root = files(
        tmp_path,
        cpu__cpu_DOT_cfs_quota_us="25000",
        cpu__cpu_DOT_cfs_period_us="100000",
        memory__memory_DOT_limit_in_bytes="209715200",
    )
    found = available(root)
    assert (found.cpus, found.memory_bytes, found.memory_is_limited) == (0.25, 209_715_200, True)


def test_version_1_without_limits_gives_the_machines_own(tmp_path: Path) -> None:
    root = files(
        tmp_path,
        cpu__cpu_DOT_cfs_quota_us="-1",
        cpu__cpu_DOT_cfs_period_us="100000",
        memory__memory_DOT_limit_in_bytes="9223372036854771712",
    )
    found = available(root)
    assert (found.cpus, found.memory_bytes, found.memory_is_limited) == (HOST_CPUS, HOST_MEMORY, False)


def test_no_cgroup_gives_the_machines_own(tmp_path: Path) -> None:
    found = available(tmp_path / "none")
    assert (found.cpus, found.memory_bytes) == (HOST_CPUS, HOST_MEMORY)


@pytest.mark.parametrize("quota", ["100000000 100000", "6400000 1000"])
def test_a_quota_above_the_machines_cpus_does_not_add_any(tmp_path: Path, quota: str) -> None:
    assert available(files(tmp_path, cpu_DOT_max=quota)).cpus == HOST_CPUS


def test_a_limit_above_the_machines_memory_is_no_limit(tmp_path: Path) -> None:
    found = available(files(tmp_path, memory_DOT_max=str(HOST_MEMORY * 2)))
    assert (found.memory_bytes, found.memory_is_limited) == (HOST_MEMORY, False)
