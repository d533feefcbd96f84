"""A DVC remote on an S3 server of this machine: push, and pull and repro in fresh clones."""

import io
import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer
from PIL import Image

from tests.graph.conftest import ROOT, Project
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
    return replace(project, path=path)


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


def archive() -> bytes:
    """24 classes of four images."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for label in range(24):
            for number in range(4):
                image = io.BytesIO()
                Image.new("RGB", (48, 40 + number), (10 * label, 60 * number, 90)).save(image, "JPEG")
                file.writestr(f"class-{label}/{number}.jpg", image.getvalue())
    return content.getvalue()


def test_the_documented_command_copies_raw_data_from_a_bucket(
    project: Project, endpoint: str, tmp_path: Path
) -> None:
    page = (ROOT / "docs/cluster.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^dvc get-url .*$", page, re.MULTILINE)
    (option,) = re.findall(r"^# from a server that is not AWS, at the end: (.*)$", page, re.MULTILINE)
    (path,) = re.findall(r"set `datasets.folder.source.path` to `(.*?)`", page)
    typed = f"{command} {option}".replace("BUCKET", BUCKET).replace("http://127.0.0.1:9000", endpoint)
    key = command.split()[2].removeprefix("s3://BUCKET/")
    content = archive()
    boto3.client("s3", endpoint_url=endpoint).put_object(Bucket=BUCKET, Key=key, Body=content)
    project.run(f"git clone -q . {tmp_path / 'clone'}")
    copy = replace(project, path=tmp_path / "clone")
    assert endpoint in typed
    copy.run(typed)
    assert (copy.path / path).read_bytes() == content
    parameters = (copy.path / "params.yaml").read_text(encoding="utf-8")
    edited = re.sub(r"(?m)^  datasets:\n  - parts$", "  datasets:\n  - folder", parameters)
    edited = edited.replace("path: data/raw/folder\n", f"path: {path}\n")
    assert edited.count("folder") > parameters.count("folder")
    (copy.path / "params.yaml").write_text(edited, encoding="utf-8")
    copy.run("dvc repro ingest@folder")
    manifest = json.loads((copy.path / "data/shards/folder/manifest.json").read_text(encoding="utf-8"))
    assert {name: split["images"] for name, split in manifest["counts"].items()} == {"train": 48, "test": 48}
