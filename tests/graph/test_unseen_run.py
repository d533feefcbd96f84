"""`unseen run -j` writes the same bytes as `dvc repro`, in the real graph."""

import pytest

from tests.graph.conftest import EQUAL, Project

pytestmark = [pytest.mark.graph, pytest.mark.ray, pytest.mark.timeout(900)]


def test_a_parallel_run_writes_the_same_bytes(built: Project) -> None:
    expected = built.digests(*EQUAL, "report")
    output = built.run("unseen run -j 2 --force")
    assert built.digests(*EQUAL, "report") == expected
    assert len(expected) > 10
    assert any(name.startswith("data/sweep/") and name.endswith("trials.csv") for name in expected)
    assert "up to date" in built.run("dvc status")
    stages = built.run("dvc stage list --name-only").split()
    for stage in stages:
        assert f"{stage}: started, log data/state/logs/{stage}.log" in output
        assert f"{stage}: done" in output
    cluster = built.path / "data/state/logs/cluster.log"
    assert not cluster.exists(), "a sweep with one trial at a time needs no cluster"
    assert "parts has 36 test images of 6 classes" in output
    assert "report: data/report/index.html" in output
    assert "unchanged: " in built.run("unseen run -j 2")
