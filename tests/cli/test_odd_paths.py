"""Paths that name no regular file, and names that a terminal must not show as they are."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests.photos import COUNT, save_model, save_photos
from unseen.cli import main as cli
from unseen_search import search

pytestmark = pytest.mark.slow
ESCAPE = "\x1b[2J"


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("odd")
    save_photos(folder / "photos")
    save_model(folder / "model", 1)
    cli.main(["index", str(folder / "photos"), str(folder / "catalog"), "--model", str(folder / "model")])
    return folder / "catalog"


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe.jpg"
    os.mkfifo(path)
    return path


def _refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    with pytest.raises(SystemExit) as ended:
        cli.main([str(argument) for argument in arguments])
    assert ended.value.code == 1
    return capsys.readouterr().err


@pytest.mark.timeout(60)
def test_a_read_of_a_named_pipe_never_begins(
    catalog: Path, pipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos, model = catalog.parent / "photos", catalog.parent / "model"
    commands: list[list[object]] = [
        ["find", catalog, pipe],
        ["find", catalog, "--list", pipe],
        ["index", photos, pipe.parent / "new", "--model", model, "--labels", pipe],
        ["index", photos, pipe.parent / "new", "--network", "resnet18.a1_in1k", "--weights", pipe],
        ["evaluate", pipe.with_name("vectors.npy"), "--labels", pipe],
    ]
    np.save(pipe.with_name("vectors.npy"), np.eye(4, dtype=np.float32))
    for command in commands:
        error = _refused(capsys, *command)
        assert error.count("error:") == 1, command
        assert f"{pipe} cannot be read" in error
        assert "named pipe" in error


def test_a_page_replaces_no_directory_and_no_pipe(
    catalog: Path, pipe: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    photos, model = catalog.parent / "photos", catalog.parent / "model"

    def embed(*_: object) -> None:
        raise AssertionError("the check precedes the work")

    monkeypatch.setattr("unseen_search.indexing.build", embed)
    monkeypatch.setattr("unseen_search.search.Catalog", embed)
    query = photos / "shelf 1/deep/schön 1.jpg"
    for target in (pipe, pipe.parent):
        expected = f"{target} is a "
        assert expected in _refused(capsys, "find", catalog, query, "--page", target)
        new = pipe.parent / "new"
        assert expected in _refused(capsys, "index", photos, new, "--model", model, "--duplicates", target)
    assert pipe.is_fifo()


def test_names_with_control_characters_and_other_bytes_are_shown_escaped(
    catalog: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = (catalog.parent / "photos/shelf 1/deep/schön 1.jpg").read_bytes()
    names = [os.fsencode(f"{ESCAPE}x.png"), b"\xff.png"]
    for name in names:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(picture)
    cli.main(["find", str(catalog), str(tmp_path), "-k", "1", "--page", str(tmp_path / "page.html")])
    printed = capsys.readouterr().out
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    for text in (printed, page):
        assert "\\x1b[2Jx.png" in text
        assert "\ufffd.png" in text
        assert "\x1b" not in text
    cli.main(["find", str(catalog), str(tmp_path), "-k", "1", "--json"])
    queries = json.loads(capsys.readouterr().out)["queries"]
    assert {os.fsencode(Path(query["query"]).name) for query in queries} == set(names)


def test_messages_contain_no_control_character(
    catalog: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photo = tmp_path / f"{ESCAPE}a\nb.jpg"
    photo.write_bytes(b"damaged")
    message = _refused(capsys, "index", tmp_path, tmp_path / "new", "--model", catalog.parent / "model")
    assert "\n  " + str(tmp_path) + "/\\x1b[2Ja\\nb.jpg: " in message
    message = _refused(capsys, "find", tmp_path / f"{ESCAPE}catalog", photo)
    assert "\\x1b[2Jcatalog" in message
    assert "\x1b" not in message


def test_find_excludes_damaged_photos_if_asked(
    catalog: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = (catalog.parent / "photos/shelf 1/deep/schön 1.jpg").read_bytes()
    (tmp_path / "a.png").write_bytes(whole)
    (tmp_path / "b.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "c.png").symlink_to("nothing.png")
    assert "b.png" in _refused(capsys, "find", catalog, tmp_path)
    cli.main(["find", str(catalog), str(tmp_path), "-k", "1", "--skip-damaged"])
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0] == str(tmp_path / "a.png")
    assert [line.split()[0] for line in printed.err.splitlines() if ".png" in line] == ["excluded:"] * 2
    cli.main(["find", str(catalog), str(tmp_path), "-k", "1", "--skip-damaged", "--json"])
    content = json.loads(capsys.readouterr().out)
    assert [entry["query"] for entry in content["queries"]] == [str(tmp_path / "a.png")]
    assert [entry["query"] for entry in content["excluded"]] == [
        str(tmp_path / name) for name in ("b.png", "c.png")
    ]
    assert all("cannot be read" in entry["reason"] for entry in content["excluded"])
    (tmp_path / "a.png").unlink()
    assert "No photo can be read" in _refused(capsys, "find", catalog, tmp_path, "--skip-damaged")


def test_find_decodes_a_photo_once_unless_its_batch_is_damaged(
    catalog: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    photo = catalog.parent / "photos/shelf 1/deep/schön 1.jpg"
    for number in range(4):
        (tmp_path / f"{number}.jpg").write_bytes(photo.read_bytes())
    (tmp_path / "2.jpg").write_bytes(b"no picture")
    monkeypatch.setattr("unseen_search.search.BATCH", 2)
    checked: list[list[Path]] = []
    check = search._damaged
    monkeypatch.setattr(search, "_damaged", lambda batch: checked.append(batch) or check(batch))
    cli.main(["find", str(catalog), str(tmp_path), "-k", "1", "--skip-damaged", "--json"])
    content = json.loads(capsys.readouterr().out)
    assert [Path(entry["query"]).name for entry in content["queries"]] == ["0.jpg", "1.jpg", "3.jpg"]
    assert {entry["matches"][0]["path"] for entry in content["queries"]} == {"shelf 1/deep/schön 1.jpg"}
    assert checked == [[tmp_path / "2.jpg", tmp_path / "3.jpg"]]


def test_find_lists_what_it_omits_in_a_folder(
    catalog: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = (catalog.parent / "photos/shelf 1/deep/schön 1.jpg").read_bytes()
    for name in ("a.jpg", "b.jp2", "nosuffix", ".hidden.jp2"):
        (tmp_path / name).write_bytes(picture)
    os.mkfifo(tmp_path / "pipe.jpg")
    cli.main(["find", str(catalog), str(tmp_path), "-k", "1"])
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0] == str(tmp_path / "a.jpg")
    assert [line for line in printed.err.splitlines() if line.startswith("find:")] == [
        "find: warning: 1 entry is a named pipe, socket or device, and not read: pipe.jpg.",
        "find: skipped: 1 .jp2, 1 no suffix",
        "find: warning: 1 image has a format that is not read: b.jp2. Convert them to JPEG or PNG.",
    ]


def test_a_page_replaces_no_photo(catalog: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos, model = catalog.parent / "photos", catalog.parent / "model"
    whole = (photos / "shelf 1/deep/schön 1.jpg").read_bytes()
    for name in ("photo.jpg", "photo"):
        (tmp_path / name).write_bytes(whole)
    (tmp_path / "page.html").symlink_to("photo")
    folder = tmp_path / "photo.jpg", tmp_path / "photo"
    for page in ("photo.jpg", "photo", "page.html", "new.JP2"):
        assert "the page would replace it" in _refused(
            capsys, "find", catalog, *folder, "--page", tmp_path / page
        )
        assert [path.read_bytes() for path in folder] == [whole, whole]
        assert not (tmp_path / "new.JP2").exists()
    new = tmp_path / "new"
    message = _refused(capsys, "index", photos, new, "--model", model, "--duplicates", folder[0])
    assert "has the suffix of a picture, .jpg" in message
    assert not new.exists()
    assert folder[0].read_bytes() == whole


def test_index_names_excluded_pictures_and_lists_what_it_does_not_read(
    catalog: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos, model = save_photos(tmp_path / "photos"), catalog.parent / "model"
    (photos / f"{ESCAPE}cut.jpg").write_bytes(b"no picture")
    (photos / "phone.jxl").write_bytes(b"")
    (photos / "shelf 9").symlink_to("shelf 0")
    os.mkfifo(photos / "pipe.jpg")
    new = tmp_path / "new"
    cli.main(["index", str(photos), str(new), "--model", str(model), "--skip-damaged"])
    printed = capsys.readouterr()
    first, second = printed.out.splitlines()
    assert first == f"{new}: {COUNT} pictures, 1 excluded"
    assert second.startswith("excluded: \\x1b[2Jcut.jpg (no image format that is read")
    assert second.endswith(f"{new / 'catalog.json'} lists them under left_out.")
    assert "catalog: warning: 1 folder is another folder under a second name, by a link" in printed.err
    about = json.loads((new / "catalog.json").read_text())
    assert list(about["left_out"]) == [f"{ESCAPE}cut.jpg"]
    assert about["not_read"] == {
        "phone.jxl": "a format that is not read",
        "pipe.jpg": "a named pipe, socket or device",
    }


@pytest.mark.parametrize("path", ["/proc/catalog", "photo.png/catalog"])
def test_a_catalog_where_no_file_can_be_created_is_an_error(
    catalog: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, path: str
) -> None:
    (tmp_path / "photo.png").write_bytes(b"")
    photos, model = catalog.parent / "photos", catalog.parent / "model"
    message = _refused(capsys, "index", photos, tmp_path / path, "--model", model)
    assert f"error: {Path(tmp_path / path).parent} " in message


def test_a_file_in_the_place_of_a_folder_is_an_error(
    catalog: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    model, photos = catalog.parent / "model", catalog.parent / "photos"
    assert f"{file} is a file" in _refused(capsys, "index", file, tmp_path / "new", "--model", model)
    assert f"{file}/recipe.json is missing" in _refused(
        capsys, "index", photos, tmp_path / "new", "--model", file
    )
