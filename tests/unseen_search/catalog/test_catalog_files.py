"""A reader gets one complete catalog; damaged files are refused or built again."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.photos import COUNT, save_model, save_photos
from unseen.runtime.digest import sha256_of
from unseen.runtime.errors import UserError
from unseen.runtime.sealed import write_sealed
from unseen_search.catalog import Catalog, build
from unseen_search.catalog import files as module
from unseen_search.catalog.results_page import page


@pytest.mark.slow
def test_a_reader_finds_the_complete_catalog_of_a_killed_replacement(
    model: Path, photos: Path, tmp_path: Path
) -> None:
    previous = build(photos, tmp_path / "catalog", model, processes=1)
    (tmp_path / "catalog").rename(tmp_path / ".catalog.replaced")  # the state between the two renames
    catalog = Catalog(tmp_path / "catalog")
    assert catalog.paths == previous.paths
    assert catalog.find([photos / catalog.paths[0]], 1)[0][0].path == catalog.paths[0]


@pytest.mark.slow
@pytest.mark.parametrize("verify", [True, False])
def test_a_reader_during_a_replacement_gets_one_complete_catalog(
    model: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verify: bool
) -> None:
    earlier = build(photos, tmp_path / "catalog", model, processes=1)
    fewer = shutil.copytree(photos, tmp_path / "fewer")
    (fewer / earlier.paths[0]).unlink()
    build(fewer, tmp_path / "new", model, processes=1)
    read = module.read_part
    reads: list[str] = []

    def exchanging(directory: Path, name: str, reader: Callable[[Path], Any]) -> Any:
        reads.append(name)
        if reads.count(module.PICTURES) == 1 and name == module.PICTURES:
            (tmp_path / "catalog").rename(tmp_path / ".catalog.replaced")
            (tmp_path / "new").rename(tmp_path / "catalog")
        return read(directory, name, reader)

    monkeypatch.setattr("unseen_search.catalog.catalog.read_part", exchanging)
    catalog = Catalog(tmp_path / "catalog", verify=verify)
    assert catalog.photos == fewer
    assert len(catalog) == len(catalog.index.ids) == COUNT - 1


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("structure")
    build(save_photos(folder / "photos"), folder / "catalog", save_model(folder / "model", 1), processes=1)
    return folder / "catalog"


def hostile(built: Path, directory: Path, path: str) -> Catalog:
    """A catalog of somebody else, whose first picture is `path` in its table, with fitting digests."""
    shutil.copytree(built, directory)
    table = pq.read_table(directory / module.PICTURES, memory_map=False)
    paths = [path, *table["path"].to_pylist()[1:]]
    pq.write_table(table.set_column(0, "path", pa.array(paths)), directory / module.PICTURES)
    about = module.read_about(directory)
    about["files"][module.PICTURES] = sha256_of(directory / module.PICTURES)
    about["sizes"][module.PICTURES] = (directory / module.PICTURES).stat().st_size
    write_sealed(directory / module.ABOUT, about)
    return Catalog(directory)


def test_a_catalog_that_is_exchanged_at_each_reading_is_an_error(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (shutil.copytree(built, tmp_path / name) for name in ("catalog", "new"))
    read = module.read_part

    def exchanging(directory: Path, name: str, reader: Callable[[Path], Any]) -> Any:
        result = read(directory, name, reader)
        if name == module.INDEX and result is not None:  # read after its verification
            first.rename(tmp_path / "aside")
            second.rename(first)
            (tmp_path / "aside").rename(second)
        return result

    monkeypatch.setattr("unseen_search.catalog.catalog.read_part", exchanging)
    with pytest.raises(UserError, match="was exchanged 10 times while it was read"):
        Catalog(first)


@pytest.mark.parametrize("path", ["../../private/secret.png", "/private/secret.png", "a/../../secret.png"])
def test_refuses_a_picture_outside_of_the_folder(built: Path, tmp_path: Path, path: str) -> None:
    catalog = hostile(built, tmp_path / "catalog", path)
    query = catalog.photos / Catalog(built).paths[0]
    with pytest.raises(UserError, match=r"names a file outside of the folder of the pictures: .*secret\.png"):
        catalog.find([query], COUNT)
    with pytest.raises(UserError, match="outside of the folder"):
        list(catalog.paths)


def test_a_page_shows_no_other_picture_and_no_folder_of_the_machine(built: Path, tmp_path: Path) -> None:
    private = Catalog(built).photos / "private.png"
    query = Catalog(built).photos / Catalog(built).paths[1]
    shutil.copyfile(query, private)
    catalog = hostile(built, tmp_path / "catalog", private.name)
    html = page(catalog, [query], catalog.identify([query], COUNT))
    private.unlink()
    assert html.count("<img") == 1 + COUNT - 1, "the query, and all matches but that of the first row"
    assert str(tmp_path) not in html
    assert "Matches in .../catalog" in html


@pytest.mark.parametrize("key", module._ABOUT_TYPES)
def test_refuses_values_of_another_type(built: Path, tmp_path: Path, key: str) -> None:
    catalog = shutil.copytree(built, tmp_path / "catalog")
    about = module.read_about(catalog)
    nothing = () if key in module._OPTIONAL else (None,)
    for value in (*nothing, 5.5, True, "\ud800x", [], [[1]], {"a": 1}):
        (catalog / "catalog.json").write_text(json.dumps(about | {key: value}))
        with pytest.raises(UserError, match=r"catalog\.json is damaged: "):
            Catalog(catalog)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        *(("dim", dim, f"its `dim` is {dim}, the vectors have 8") for dim in (0, -1, 7, 2**70)),
        ("pictures", 5, f"is damaged: {COUNT} pictures, {COUNT} vectors"),
    ],
)
def test_refuses_another_number_of_dimensions_or_pictures(
    built: Path, tmp_path: Path, key: str, value: int, message: str
) -> None:
    catalog = shutil.copytree(built, tmp_path / "catalog")
    write_sealed(catalog / "catalog.json", module.read_about(catalog) | {key: value})
    with pytest.raises(UserError, match=message):
        Catalog(catalog)


@pytest.mark.parametrize(
    ("content", "reason"),
    [("[]", "it contains no object"), (f'{{"schema_version": {module.SCHEMA_VERSION}}}', "it lacks one of")],
)
def test_refuses_a_catalog_json_without_its_keys(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / "catalog.json").write_text(content)
    with pytest.raises(UserError, match=rf"catalog\.json is damaged: {reason}"):
        module.read_about(tmp_path)


def test_damage_of_a_table_that_was_not_verified_is_an_error(built: Path, tmp_path: Path) -> None:
    catalog = shutil.copytree(built, tmp_path / "catalog")
    content = (catalog / module.PICTURES).read_bytes()
    (catalog / module.PICTURES).write_bytes(content[:4] + bytes(400) + content[404:])
    opened = Catalog(catalog, verify=False)
    with pytest.raises(UserError, match=r"pictures\.parquet is damaged: .*\n.*unseen index"):
        list(opened.paths)


@pytest.mark.parametrize("part", ["index.faiss", "pictures.parquet", "catalog.json"])
def test_refuses_a_damaged_catalog(model: Path, photos: Path, tmp_path: Path, part: str) -> None:
    build(photos, tmp_path / "catalog", model, processes=1)
    path = tmp_path / "catalog" / part
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(UserError, match=f"{part} is damaged"):
        Catalog(tmp_path / "catalog")
    path.unlink()
    with pytest.raises(UserError, match=f"{part} is missing"):
        Catalog(tmp_path / "catalog")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("files", {"indez.faiss": "0"}),
        ("files", ["index.faiss"]),
        ("sizes", {}),
        ("sizes", {"index.faiss": None, "pictures.parquet": 1}),
    ],
)
def test_refuses_an_index_of_its_files_that_no_build_wrote(tmp_path: Path, key: str, value: object) -> None:
    written = {"files": {"index.faiss": "0", "pictures.parquet": "1"}}
    written["sizes"] = dict.fromkeys(written["files"], 1)
    about = {name: kind() for name, kind in module._ABOUT_TYPES.items()} | written
    about |= {"schema_version": module.SCHEMA_VERSION, "index": {"kind": "flat"}, "precision": "float32"}
    about |= {"decision": None, "onnx": None, key: value}
    (tmp_path / "catalog.json").write_text(json.dumps(about))
    with pytest.raises(UserError, match=r"catalog\.json is damaged: .*(files|sizes)"):
        module.read_about(tmp_path)
    write_sealed(tmp_path / "catalog.json", about | written)
    assert module.read_about(tmp_path)["files"] == written["files"]


@pytest.mark.slow
@pytest.mark.parametrize("part", ["index.faiss", "pictures.parquet", "catalog.json"])
@pytest.mark.parametrize("damage", ["cut", "missing", "other"])
def test_rebuilds_a_damaged_catalog(
    model: Path,
    photos: Path,
    tmp_path: Path,
    part: str,
    damage: str,
    embedded: list[int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    paths = build(photos, tmp_path / "catalog", model, processes=1).paths
    path = tmp_path / "catalog" / part
    content = path.read_bytes()
    match damage:
        case "cut":
            path.write_bytes(content[:-30])
        case "missing":
            path.unlink()
        case "other":
            path.write_bytes(b"{}")
    capsys.readouterr()
    rebuilt = build(photos, tmp_path / "catalog", model, processes=1)
    lines = capsys.readouterr().err.splitlines()
    problem = "missing" if damage == "missing" else "damaged"
    assert any(part in line and problem in line and "is built again" in line for line in lines), lines
    assert embedded == [COUNT, COUNT]
    assert path.read_bytes() == content
    assert rebuilt.paths == paths
    build(photos, tmp_path / "catalog", model, processes=1)
    assert embedded == [COUNT, COUNT], "the new catalog is complete"


@pytest.mark.slow
@pytest.mark.parametrize("version", [None, 3])
def test_builds_a_catalog_of_another_schema_version_again(
    model: Path, photos: Path, tmp_path: Path, version: int | None, embedded: list[int]
) -> None:
    build(photos, tmp_path / "catalog", model, processes=1)
    path = tmp_path / "catalog/catalog.json"
    about = json.loads(path.read_text())
    del about["schema_version"]
    path.write_text(json.dumps(about if version is None else about | {"schema_version": version}))
    versions = rf"has schema version {version}, this version of unseen reads {module.SCHEMA_VERSION}"
    message = rf"catalog\.json {versions}.*\n.*unseen index"
    with pytest.raises(UserError, match=message):
        Catalog(tmp_path / "catalog")
    embedded.clear()
    assert len(build(photos, tmp_path / "catalog", model, processes=1)) == COUNT
    assert sum(embedded) == COUNT


@pytest.mark.slow
def test_one_wrong_bit_is_an_error(model: Path, photos: Path, tmp_path: Path, embedded: list[int]) -> None:
    catalog = tmp_path / "catalog"
    complete = build(photos, catalog, model, labels="folders", processes=1)
    assert set(complete.about["files"]) == {
        *("decision.svg", "index.faiss", "pictures.parquet", "rivals.parquet")
    }
    for name in complete.about["files"]:
        content = bytearray((catalog / name).read_bytes())
        content[len(content) // 2] ^= 1
        (catalog / name).write_bytes(content)
        with pytest.raises(UserError, match=f"{name} is damaged: its sha256 is not that of the build"):
            Catalog(catalog)
        content[len(content) // 2] ^= 1
        (catalog / name).write_bytes(content)
    content = bytearray((catalog / "index.faiss").read_bytes())
    content[-1] ^= 1
    (catalog / "index.faiss").write_bytes(content)
    assert len(Catalog(catalog, verify=False)) == COUNT
    embedded.clear()
    build(photos, catalog, processes=1)
    assert embedded == [COUNT]


def test_an_update_with_a_damaged_model_needs_another_one(built: Path, tmp_path: Path) -> None:
    catalog = shutil.copytree(built, tmp_path / "catalog")
    (catalog / "model/weights.safetensors").write_bytes(b"damaged")
    with pytest.raises(UserError, match=r"model of the catalog cannot be used: .*weights(.|\n)*Name a model"):
        build(Catalog(built).photos, catalog, processes=1)


def test_refuses_a_changed_catalog_json(built: Path, tmp_path: Path) -> None:
    catalog = shutil.copytree(built, tmp_path / "catalog")
    about = catalog / module.ABOUT
    content = json.loads(about.read_text())
    for changed in (content | {"photos": "elsewhere"}, module.read_about(catalog)):
        about.write_text(json.dumps(changed))
        with pytest.raises(UserError, match=r"catalog\.json differs from its sha256, or has none"):
            Catalog(catalog)
