"""The cores of a process: those of its affinity mask instead of those of the machine."""

import os
from pathlib import Path

import pytest

from unseen.runtime import cores
from unseen.runtime.cores import loader_threads_of, usable_cores


@pytest.fixture(autouse=True)
def no_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "_QUOTA", tmp_path / "cpu.max")


def test_counts_the_cores_of_the_affinity_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1, 3, 5}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert usable_cores() == 3


@pytest.mark.parametrize(("count", "expected"), [(8, 8), (None, 1)])
def test_counts_all_cores_without_affinity(
    count: int | None,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    assert usable_cores() == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, 16),
        ("max 100000\n", 16),
        ("800000 100000\n", 8),
        ("150000 100000\n", 2),
        ("9900000 100000\n", 16),
    ],
)
def test_the_limit_of_a_container_bounds_the_cores(
    content: str | None, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    if content is not None:
        (tmp_path / "cpu.max").write_text(content)
    assert cores.usable_cores() == expected


@pytest.mark.parametrize(("cores_here", "processes", "expected"), [(6, 2, 3), (2, 4, 1), (64, 4, 8)])
def test_processes_share_the_cores_for_their_loaders(
    cores_here: int, processes: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "usable_cores", lambda: cores_here)
    assert loader_threads_of(processes) == expected
    assert loader_threads_of(processes, "cuda") == max(1, cores_here // processes)
