"""`unseen run -j` writes the same bytes as `dvc repro`, in the real graph."""

import hashlib

import pytest

from tests.graph.conftest import Project

pytestmark = [pytest.mark.graph, pytest.mark.ray, pytest.mark.timeout(900)]


def digests(project: Project) -> dict[str, str]:
    """SHA-256 of the files that `dvc repro` reproduces to the byte."""
    names = (
        *("shards", "models", "embeddings", "positions", "evaluation", "analysis"),
        *("metrics", "history", "sweep", "report"),
    )
    folders = [project.path / "data" / name for name in names]
    files_of = [[path for path in sorted(folder.rglob("*")) if path.is_file()] for folder in folders]
    assert all(files_of), "every stage wrote files"
    return {
        str(path.relative_to(project.path)): hashlib.sha256(path.read_bytes()).hexdigest()
        for files in files_of
        for path in files
    }


def test_a_parallel_run_writes_the_same_bytes(built: Project) -> None:
    expected = digests(built)
    output = built.run("unseen run -j 2 --force")
    assert digests(built) == expected
    assert len(expected) > 10
    assert any(name.startswith("data/sweep/") and name.endswith("trials.csv") for name in expected)
    assert "up to date" in built.run("dvc status")
    stages = built.run("dvc stage list --name-only").split()
    for stage in stages:
        assert f"{stage}: started, log data/state/logs/{stage}.log" in output
        assert f"{stage}: done" in output
    assert (built.path / "data/state/logs/cluster.log").exists(), "the sweep started the cluster of the run"
    assert "parts has 36 test images of 6 classes" in output
    assert "report: data/report/index.html" in output
    assert "unchanged: " in built.run("unseen run -j 2")
