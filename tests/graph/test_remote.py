"""A DVC remote on an S3 server of this machine: push, and pull and repro in fresh clones."""

from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.graph.conftest import Project
from tests.graph.dvc_output import stages_run

pytestmark = [pytest.mark.graph, pytest.mark.timeout(900)]
BUCKET = "unseen-cache"


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of an S3 server with an empty bucket."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        address = f"http://{host}:{port}"
        boto3.client("s3", endpoint_url=address).create_bucket(Bucket=BUCKET)
        yield address
    finally:
        server.stop()


def clone(project: Project, path: Path) -> Project:
    """A fresh clone of the copy, with its remote and without its data."""
    project.run(f"git clone -q . {path} && cp .dvc/config.local {path}/.dvc/")
    return Project(path, project.home)


def files(project: Project) -> dict[str, bytes]:
    folder = project.path / "data"
    names = [
        name for part in ("models", "embeddings", "report") for name in sorted((folder / part).rglob("*"))
    ]
    return {str(name.relative_to(folder)): name.read_bytes() for name in names if name.is_file()}


def test_a_fresh_clone_gets_all_results_from_a_remote(built: Project, endpoint: str, tmp_path: Path) -> None:
    built.run(f"dvc remote add --local --default store s3://{BUCKET}/dvc")
    built.run(f"dvc remote modify --local store endpointurl {endpoint}")
    try:
        assert "files pushed" in built.run("dvc push")
        assert "Everything is up to date" in built.run("dvc push")
        pulled = clone(built, tmp_path / "pulled")
        assert not (pulled.path / "data/models").exists()
        pulled.run("dvc pull")
        assert "up to date" in pulled.run("dvc status")
        assert files(pulled) == files(built)

        continued = clone(built, tmp_path / "continued")
        continued.run("sed -i 's/^  title: .*/  title: another title/' params.yaml")
        output = continued.run("dvc repro --pull")
        assert stages_run(output) == {"resolve", "report"}
        assert "another title" in (continued.path / "data/report/index.html").read_text(encoding="utf-8")
    finally:
        (built.path / ".dvc/config.local").unlink()
