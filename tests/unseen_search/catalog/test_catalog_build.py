"""A build embeds each picture once, also after a kill, and names pictures that it cannot read."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.photos import COUNT, age, picture, save_model
from unseen.data.ingest.sources.folder import Directory
from unseen.frozen.pictures import listed
from unseen.runtime.errors import UserError
from unseen_search.catalog import Catalog, build

making = sys.modules["unseen_search.catalog.building"]


@pytest.mark.slow
def test_only_new_pictures_are_embedded(
    model: Path, photos: Path, tmp_path: Path, embedded: list[int]
) -> None:
    first = build(photos, tmp_path / "catalog", model, processes=1)
    (photos / "shelf 0/schön 0.jpg").rename(photos / "renamed.jpg")
    (photos / "shelf 1/deep/schön 1.jpg").unlink()
    (photos / "one more.webp").write_bytes(picture(50, "WEBP"))
    (photos / "a copy of it.webp").write_bytes(picture(50, "WEBP"))
    updated = build(photos, tmp_path / "catalog", model, processes=1)
    assert embedded == [COUNT, 1]
    assert len(updated) == COUNT + 1
    assert "shelf 1/deep/schön 1.jpg" not in updated.paths
    vectors_by_digest = dict(zip(first.sha256, first.vectors(), strict=True))
    for path, digest, vector in zip(updated.paths, updated.sha256, updated.vectors(), strict=True):
        if path.endswith("webp"):
            assert digest not in vectors_by_digest
        else:
            assert (vector == vectors_by_digest[digest]).all(), path
    other_model = build(photos, tmp_path / "catalog", save_model(tmp_path / "other", 2), processes=1)
    assert embedded == [COUNT, 1, COUNT]
    assert not np.allclose(other_model.vectors(), updated.vectors())


@pytest.mark.slow
def test_an_update_says_what_it_removes_and_refuses_to_remove_many(
    model: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog, other = tmp_path / "catalog", tmp_path / "other"
    build(photos, catalog, model, processes=1)
    (photos / "shelf 0/schön 0.jpg").unlink()
    (photos / "shelf 1/deep/schön 1.jpg").rename(photos / "moved.jpg")
    assert len(build(photos, catalog, processes=1)) == COUNT - 1
    printed = capsys.readouterr().err
    assert re.search(r"removed: 1 of the 11 pictures .* missing in .*: shelf 0 \(1\)\.", printed)
    other.mkdir()
    (other / "1.png").write_bytes(picture(70, "PNG"))
    before = (catalog / "catalog.json").read_bytes()
    with pytest.raises(UserError, match=r"10 of the 10 pictures .* missing in .*other.*\n.*add --remove"):
        build(other, catalog, processes=1)
    assert (catalog / "catalog.json").read_bytes() == before
    assert build(other, catalog, processes=1, remove=True).paths == ["1.png"]


@pytest.mark.slow
def test_a_killed_build_resumes_to_the_same_bytes(
    model: Path, photos: Path, tmp_path: Path, embedded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "BLOCK", 4)
    complete = build(photos, tmp_path / "whole", model, processes=1)
    vectors = making.VECTORS

    def killed(path: Path, digests: list[str], values: np.ndarray) -> None:
        vectors.write(path, digests, values)
        if sum(embedded) == COUNT + 8:
            raise KeyboardInterrupt

    monkeypatch.setattr(making, "VECTORS", vectors._replace(write=killed))
    with pytest.raises(KeyboardInterrupt):
        build(photos, tmp_path / "broken", model, processes=1)
    assert not (tmp_path / "broken").exists()
    monkeypatch.setattr(making, "VECTORS", vectors)
    resumed = build(photos, tmp_path / "broken", model, processes=1)
    assert embedded == [4, 4, 3, 4, 4, 3]
    assert not (tmp_path / "broken.unfinished").exists()
    assert (resumed.vectors() == complete.vectors()).all()
    for name in ("index.faiss", "pictures.parquet", "catalog.json"):
        assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.slow
def test_an_unfinished_build_of_another_model_is_not_continued(
    model: Path, photos: Path, tmp_path: Path, embedded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = making.VECTORS

    def killed(path: Path, digests: list[str], values: np.ndarray) -> None:
        vectors.write(path, digests, values)
        raise KeyboardInterrupt

    monkeypatch.setattr(making, "VECTORS", vectors._replace(write=killed))
    with pytest.raises(KeyboardInterrupt):
        build(photos, tmp_path / "catalog", save_model(tmp_path / "other", 2), processes=1)
    monkeypatch.setattr(making, "VECTORS", vectors)
    build(photos, tmp_path / "catalog", model, processes=1)
    assert embedded == [COUNT, COUNT]


@pytest.mark.slow
def test_a_build_killed_during_the_replacement_embeds_no_picture_twice(
    model: Path, photos: Path, tmp_path: Path, embedded: list[int]
) -> None:
    build(photos, tmp_path / "catalog", model, processes=1)
    (tmp_path / "catalog").rename(tmp_path / ".catalog.replaced")  # the state between the two renames
    build(photos, tmp_path / "catalog", model, processes=1)
    assert embedded == [COUNT]
    assert not (tmp_path / ".catalog.replaced").exists()


@pytest.mark.slow
def test_damaged_pictures_stop_the_build_or_are_omitted_with_a_warning(
    model: Path, photos: Path, tmp_path: Path
) -> None:
    previous = build(photos, tmp_path / "catalog", model, processes=1)
    (photos / "cut.jpg").write_bytes(picture(7)[:-40])
    (photos / "text.png").write_text("no picture")
    with pytest.raises(
        UserError,
        match=r"2 pictures cannot be read:\n.*cut\.jpg: .*\n.*text\.png: no image format(.|\n)*--skip",
    ):
        build(photos, tmp_path / "catalog", model, processes=1)
    assert Catalog(tmp_path / "catalog").paths == previous.paths
    catalog = build(photos, tmp_path / "catalog", model, skip_damaged=True, processes=1)
    assert len(catalog) == COUNT
    assert set(catalog.about["left_out"]) == {"cut.jpg", "text.png"}


def test_warns_of_images_in_unsupported_formats(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (photos / "shelf 0" / "phone.JXL").write_bytes(b"")
    (photos / "@eaDir").mkdir()
    (photos / "@eaDir" / "1.jpg").write_bytes(b"")
    (photos / "link.jpg").symlink_to("nowhere.jpg")
    pictures = listed(photos, 1)
    assert len(pictures.paths) == COUNT
    assert pictures.damaged == {"link.jpg": "No such file or directory"}
    errors = capsys.readouterr().err
    assert "catalog: skipped: 1 .jxl, 1 .txt\n" in errors
    assert "catalog: left out the pictures of folders that are hidden or of a system: @eaDir.\n" in errors
    warning = "1 image has a format that is not read: shelf 0/phone.JXL. Convert them to JPEG or PNG."
    assert f"catalog: warning: {warning}\n" in errors


@pytest.mark.slow
def test_files_of_equal_size_and_time_are_not_read(
    model: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = photos / "shelf 0/schön 0.jpg"
    new_content = picture(0)[:-2] + b"\xff\xd9"
    first = build(photos, tmp_path / "catalog", model, processes=1)
    read: list[str] = []
    original = Directory.read
    monkeypatch.setattr(Directory, "read", lambda self, name: read.append(name) or original(self, name))
    assert build(photos, tmp_path / "catalog", processes=1).sha256 == first.sha256
    assert read == []
    (photos / "one more.jpg").write_bytes(picture(77))
    build(photos, tmp_path / "catalog", processes=1)
    assert read == ["one more.jpg"]
    build(photos, tmp_path / "catalog", processes=1)
    assert read == ["one more.jpg"] * 2, "a time just before the build does not show the next change"
    age(photos / "shelf 0", 30)
    (photos / "one more.jpg").unlink()
    read.clear()
    changed.write_bytes(new_content)
    updated = build(photos, tmp_path / "catalog", processes=1)
    assert set(read) == {path for path in first.paths if path.startswith("shelf 0/")}
    assert updated.paths == first.paths


@pytest.mark.slow
def test_refuses_a_second_build_and_takes_over_the_lock_of_a_killed_one(
    model: Path, photos: Path, tmp_path: Path, embedded: list[int]
) -> None:
    lock = tmp_path / ".catalog.lock"
    code = (
        "import sys, time; from pathlib import Path; from unseen.runtime.lock import exclusive\n"
        "with exclusive(Path(sys.argv[1]), 'builds'): print('locked', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(lock)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    with pytest.raises(UserError, match=rf"Another process \({process.pid}\) builds .*catalog: it holds"):
        build(photos, tmp_path / "catalog", model, processes=1)
    assert embedded == []
    process.kill()
    process.wait()
    process.stdout.close()
    assert lock.exists(), "the killed process did not remove it"
    build(photos, tmp_path / "catalog", model, processes=1)
    assert not lock.exists()


def test_refuses_a_file_name_that_is_not_utf8_before_the_embedding(
    model: Path, photos: Path, tmp_path: Path, embedded: list[int]
) -> None:
    Path(os.fsdecode(os.fsencode(photos) + b"/sch\xf6n.jpg")).write_bytes(picture(60))
    with pytest.raises(UserError, match=r"file names are not valid UTF-8: sch\ufffdn\.jpg"):
        build(photos, tmp_path / "catalog", model, processes=1)
    assert embedded == []
