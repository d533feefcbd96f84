"""The stage script: reads a resolved file, writes shards, prints remarks."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.data.ingest.pictures import folder
from tests.resolved import write_resolved
from tests.training.jobs import recipe
from unseen.data.shards import Shards
from unseen.stages.ingest import run


def configure(path: str = "raw", labels: str | None = None, **ingest: Any) -> None:
    """The resolved file of data set `mine` in the working directory."""
    source = {"kind": "folder", "path": path, "labels": labels, "order": "name"}
    write_resolved(Path(), "ingest", "mine", source=source, ingest={"resize": 20, "quality": 90} | ingest)


def test_reads_its_resolved_file_and_writes_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path / "raw")
    monkeypatch.chdir(tmp_path)
    configure()
    run("mine")
    shards = Shards(tmp_path / "data" / "shards" / "mine", verify=True)
    assert shards.manifest["dataset"] == "mine"
    assert shards.manifest["ingest"]["quality"] == 90
    assert shards.sizes.tolist() == [[27, 20]] * 12


@pytest.mark.parametrize("path", ["data/raw/mine", "../photos"])
def test_reports_a_source_that_dvc_does_not_track(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    folder(Path(path))
    configure(path)
    run("mine")
    note = (
        "note: DVC does not track ../photos. After a change there: dvc repro -f -s ingest@mine && dvc repro\n"
    )
    assert (note in capsys.readouterr().err) is (path == "../photos")


@pytest.mark.parametrize(
    ("side", "resize", "reports"), [(14, None, True), (15, None, False), (14, 30, False)]
)
def test_reports_images_that_are_far_larger_than_the_input(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    side: int,
    resize: int | None,
    reports: bool,
) -> None:
    """Their shorter side has 30 pixels."""
    folder(tmp_path / "raw")
    monkeypatch.chdir(tmp_path)
    configure(resize=resize)
    for method, size in (("small", 8), ("large", side)):
        of_method = recipe("baseline", input={"size": size, "resize": None}).model_dump(mode="json")
        write_resolved(Path(), "train", "mine", method, recipe=of_method)
    run("mine")
    errors = capsys.readouterr().err
    assert (f"is 30 pixels, and the recipes read {side}: " in errors) is reports
    assert (f"`resize: {2 * side}` under `ingest` in params.yaml." in errors) is reports


def test_reports_excluded_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder(Path("raw"))
    Path("raw/c0/0.jpg").write_bytes(b"broken")
    configure(str(tmp_path / "raw"), on_error="skip")
    Path("raw/c1/gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    run("mine")
    note = (
        "note: excluded damaged images: 2: c0/0.jpg, c1/gone.jpg. data/shards/mine/manifest.json lists them "
        "under ingest.skipped.\n"
    )
    assert note in capsys.readouterr().err
    manifest = Path("data/shards/mine/manifest.json").read_text()
    assert '"No such file or directory"' in manifest
    assert str(tmp_path) not in manifest, "manifest and report are shared"


def test_reports_images_in_formats_that_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("phone.jxl", "camera.dng"):
        (folder(Path("raw")) / "c1" / name).write_bytes(b"")
    configure()
    run("mine")
    note = (
        "note: 2 images have a format that is not read: c1/camera.dng, c1/phone.jxl. "
        "Convert them to JPEG or PNG. data/shards/mine/manifest.json lists them under unread_images.\n"
    )
    assert note in capsys.readouterr().err
    assert Shards(Path("data/shards/mine")).manifest["unread_images"] == ["c1/camera.dng", "c1/phone.jxl"]


def test_reports_pipes_and_equal_images_with_different_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder(Path("raw"))
    configure()
    run("mine")
    assert "note:" not in capsys.readouterr().err.replace("note: DVC does not track", "")
    os.mkfifo("raw/c0/pipe.jpg")
    shutil.copy("raw/c0/0.jpg", "raw/c1/copy.jpg")
    run("mine")
    errors = capsys.readouterr().err
    manifest = "data/shards/mine/manifest.json lists"
    assert (
        f"note: 1 entry is a named pipe, socket or device, and not read: c0/pipe.jpg. {manifest} them under "
        "irregular_files.\n"
    ) in errors
    assert (
        "note: 1 image has the same pixels as an image with another label, such as c1/copy.jpg and c0/0.jpg. "
        f"Correct the labels. {manifest} pairs under duplicates.pairs.\n"
    ) in errors
    shards = Shards(Path("data/shards/mine")).manifest
    assert shards["irregular_files"] == ["c0/pipe.jpg"]
    assert shards["duplicates"]["pairs"] == [["c0/0.jpg", "c1/copy.jpg"]]


def test_reports_files_that_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder(Path("raw"))
    Path("raw/lost").mkdir()
    for name in ("x.jpg_large", "without suffix"):
        Path("raw/lost", name).write_bytes(b"")
    Path("raw/linked").symlink_to("c0")
    Path("raw/c0/@eaDir").mkdir()
    shutil.copy("raw/c0/0.jpg", "raw/c0/@eaDir")
    configure()
    run("mine")
    errors = capsys.readouterr().err
    assert (
        "note: 2 files are not read, by the suffix (1 without suffix, 1 .jpg_large): lost/without suffix, "
        "lost/x.jpg_large.\n"
    ) in errors
    assert (
        "note: 1 folder is another folder under a second name, by a link, and not read again: linked = c0.\n"
    ) in errors
    assert "note: left out the pictures of folders that are hidden or of a system: c0/@eaDir.\n" in errors
    rows = [f"c{c}/{image}.jpg,{c}" for c in range(4) for image in range(3)]
    Path("raw/labels.csv").write_text("path,label\n" + "\n".join(rows[:-1]) + "\n")
    configure(labels="labels.csv")
    run("mine")
    assert "note: 1 image is not in the CSV, and not read: c3/2.jpg.\n" in capsys.readouterr().err
