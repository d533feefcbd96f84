"""The cores of a process: those of its affinity mask instead of those of the machine."""

import os

import pytest

from pipeline.runtime.cores import usable_cores


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
