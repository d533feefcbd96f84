"""A catalog returns the nearest pictures, embeds each picture once, and reports invalid inputs before it
changes a file."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from pipeline.catalog import Catalog, Embedder, build
from pipeline.catalog import catalog as module
from pipeline.catalog.pictures import listed
from pipeline.index.kinds import Flat, Hnsw, Ivf, IvfPq, Setting, kind_of
from pipeline.ingest.sources.folder import Directory
from pipeline.methods.pretrained import ABOUT, Network
from pipeline.models import lite0
from pipeline.models.published_network import timm
from pipeline.runtime.errors import UserError
from tests.photos import COUNT, picture, save_model, save_photos, save_products

making = sys.modules["pipeline.catalog.build"]


def age(folder: Path, seconds: float = 60) -> None:
    """Sets the modification times of all files to a time in the past."""
    for path in folder.rglob("*"):
        os.utime(path, (time.time() - seconds, time.time() - seconds))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_model(tmp_path / "model", 1)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    age(save_photos(tmp_path / "photos"), 3600)
    return tmp_path / "photos"


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of pictures of each call of an embedder by a build, which names its progress."""
    counts: list[int] = []
    call = Embedder.__call__

    def counted(self: Embedder, pictures: list[Path], label: str | None = None) -> np.ndarray:
        if label is not None:
            counts.append(len(pictures))
        return call(self, pictures, label)

    monkeypatch.setattr(Embedder, "__call__", counted)
    return counts


@pytest.mark.slow
def test_finds_the_nearest_for_a_file_for_bytes_and_for_a_new_picture(
    model: Path, photos: Path, tmp_path: Path
) -> None:
    catalog = build(photos, tmp_path / "catalog", model, processes=1)
    assert catalog.paths == sorted(path.relative_to(photos).as_posix() for path in photos.rglob("schön *"))
    new_picture = tmp_path / "new.jpg"
    new_picture.write_bytes(picture(99))
    known_picture = photos / catalog.paths[3]
    vectors = Embedder(model)([new_picture, known_picture.read_bytes()]).astype(np.float64)
    assert vectors.shape == (2, 8)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1)
    cosines = vectors @ Embedder(model)([photos / path for path in catalog.paths]).astype(np.float64).T
    for query, neighbours, expected in zip(
        (new_picture, known_picture.read_bytes()),
        catalog.find([new_picture, known_picture.read_bytes()], 4),
        cosines,
        strict=True,
    ):
        assert [match.path for match in neighbours] == [
            catalog.paths[row] for row in np.argsort(-expected)[:4]
        ], query
        assert [match.similarity for match in neighbours] == pytest.approx(
            np.sort(expected)[::-1][:4], abs=1e-6
        )
    assert catalog.find([known_picture], 1)[0][0].path == catalog.paths[3]
    assert len(catalog.find([known_picture], 500)[0]) == COUNT
    assert catalog.find([], 5) == []
    index = faiss.read_index(str(tmp_path / "catalog/index.faiss"))
    assert isinstance(index, faiss.IndexFlat)
    assert (index.metric_type, index.ntotal, index.d) == (faiss.METRIC_INNER_PRODUCT, COUNT, 8)


@pytest.mark.slow
def test_a_catalog_needs_neither_model_nor_photos(model: Path, photos: Path, tmp_path: Path) -> None:
    expected = build(photos, tmp_path / "catalog", model, processes=1).find(
        [photos / "shelf 0/schön 0.jpg"], 3
    )
    shutil.rmtree(model)
    (tmp_path / "catalog").rename(tmp_path / "moved")
    assert Catalog(tmp_path / "moved").find([photos / "shelf 0/schön 0.jpg"], 3) == expected


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
def test_a_killed_build_resumes_to_the_same_bytes(
    model: Path, photos: Path, tmp_path: Path, embedded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "BLOCK", 4)
    complete = build(photos, tmp_path / "whole", model, processes=1)
    keep = making.write_vectors

    def killed(path: Path, digests: list[str], vectors: np.ndarray) -> None:
        keep(path, digests, vectors)
        if sum(embedded) == COUNT + 8:
            raise KeyboardInterrupt

    monkeypatch.setattr(making, "write_vectors", killed)
    with pytest.raises(KeyboardInterrupt):
        build(photos, tmp_path / "broken", model, processes=1)
    assert not (tmp_path / "broken").exists()
    monkeypatch.setattr(making, "write_vectors", keep)
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
    keep = making.write_vectors

    def killed(path: Path, digests: list[str], vectors: np.ndarray) -> None:
        keep(path, digests, vectors)
        raise KeyboardInterrupt

    monkeypatch.setattr(making, "write_vectors", killed)
    with pytest.raises(KeyboardInterrupt):
        build(photos, tmp_path / "catalog", save_model(tmp_path / "other", 2), processes=1)
    monkeypatch.setattr(making, "write_vectors", keep)
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
    read = module._read
    reads: list[str] = []

    def exchanging(directory: Path, name: str, reader: Callable[[Path], Any]) -> Any:
        reads.append(name)
        if reads.count(module.PICTURES) == 1 and name == module.PICTURES:
            (tmp_path / "catalog").rename(tmp_path / ".catalog.replaced")
            (tmp_path / "new").rename(tmp_path / "catalog")
        return read(directory, name, reader)

    monkeypatch.setattr(module, "_read", exchanging)
    catalog = Catalog(tmp_path / "catalog", verify=verify)
    assert catalog.photos == fewer
    assert len(catalog) == len(catalog.index.ids) == COUNT - 1


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
    assert len(listed(photos, 1).paths) == COUNT
    errors = capsys.readouterr().err
    assert "catalog: skipped: 1 .jxl, 1 .txt\n" in errors
    warning = "1 image has a format that is not read: shelf 0/phone.JXL. Convert them to JPEG or PNG."
    assert f"catalog: warning: {warning}\n" in errors


@pytest.mark.slow
def test_refuses_paths_without_catalog_model_or_picture(model: Path, photos: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"catalog\.json is missing: .* is not a catalog"):
        Catalog(tmp_path)
    with pytest.raises(UserError, match="exists and is not a catalog"):
        build(photos, photos, model)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="contains no picture"):
        build(tmp_path / "empty", tmp_path / "catalog", model)
    with pytest.raises(UserError, match=r"recipe\.json is missing"):
        build(photos, tmp_path / "catalog", photos)
    assert not (tmp_path / "catalog").exists()
    catalog = build(photos, tmp_path / "catalog", model, processes=1)
    with pytest.raises(UserError, match=r"nowhere\.jpg cannot be read: No such file"):
        catalog.find([tmp_path / "nowhere.jpg"])
    with pytest.raises(UserError, match=r"prices\.txt cannot be read as a picture"):
        catalog.find([photos / "prices.txt"])
    with pytest.raises(UserError, match="k is 0, expected 1 or more"):
        catalog.find([photos / catalog.paths[0]], 0)


@pytest.mark.slow
def test_an_existing_catalog_needs_no_model(
    model: Path, photos: Path, tmp_path: Path, embedded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = tmp_path / "catalog"
    monkeypatch.setattr(lite0, "PACKAGE", "no_such_package")
    with pytest.raises(UserError, match=r"No network is named(.|\n)*--network"):
        build(photos, catalog, processes=1)
    first = build(photos, catalog, model, processes=1)
    shutil.rmtree(model)
    (photos / "one more.jpg").write_bytes(picture(77))
    assert len(build(photos, catalog, processes=1)) == COUNT + 1
    assert embedded == [COUNT, 1]
    (catalog / "index.faiss").write_bytes(b"damaged")
    rebuilt = build(photos, catalog, processes=1)
    assert embedded == [COUNT, 1, COUNT + 1]
    assert rebuilt.about["model"] == first.about["model"] == str(model)
    other_model = save_model(tmp_path / "other", 2)
    shutil.copyfile(other_model / "weights.safetensors", catalog / "model/weights.safetensors")
    with pytest.raises(UserError, match=r"is not the model that embedded this catalog(.|\n)*--model"):
        build(photos, catalog, processes=1)


@pytest.mark.slow
@pytest.mark.parametrize("setting", [Ivf(probes=100), Hnsw(neighbours=4)], ids=kind_of)
def test_a_catalog_has_the_index_of_its_build(
    model: Path, photos: Path, tmp_path: Path, setting: Setting, embedded: list[int]
) -> None:
    query = photos / "shelf 0/schön 0.jpg"
    flat = build(photos, tmp_path / "flat", model, processes=1)
    catalog = build(photos, tmp_path / "catalog", model, index=setting, processes=1)
    assert catalog.find([query], COUNT) == flat.find([query], COUNT), "the index searches all lists"
    assert np.array_equal(catalog.vectors(), flat.vectors())
    engine = faiss.read_index(str(tmp_path / "catalog/index.faiss"))
    assert isinstance(engine, faiss.IndexIVFFlat if isinstance(setting, Ivf) else faiss.IndexHNSWFlat)
    assert Catalog(tmp_path / "catalog").index.setting == setting
    (photos / "one more.jpg").write_bytes(picture(77))
    updated = build(photos, tmp_path / "catalog", model, processes=1)
    assert updated.index.setting == setting, "an update keeps the kind of the index"
    assert embedded == [COUNT, COUNT, 1]
    assert build(photos, tmp_path / "catalog", model, index=Flat(), processes=1).index.setting == Flat()


def test_refuses_an_index_without_full_vectors_or_enough_rows(
    model: Path, photos: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="must contain the full vectors"):
        build(photos, tmp_path / "catalog", model, index=IvfPq(refine=None), processes=1)
    with pytest.raises(UserError, match="Codes need 256 rows or more"):
        build(photos, tmp_path / "catalog", model, index=IvfPq(code_bytes=4), processes=1)
    assert not (tmp_path / "catalog").exists()


def test_refuses_a_catalog_with_another_index(model: Path, photos: Path, tmp_path: Path) -> None:
    build(photos, tmp_path / "catalog", model, processes=1)
    path = tmp_path / "catalog/catalog.json"
    about = json.loads(path.read_text())
    assert about.pop("index") == {"kind": "flat"}
    path.write_text(json.dumps(about))
    path.write_text(json.dumps(about | {"index": {"kind": "tree"}}))
    with pytest.raises(UserError, match=r"catalog\.json is damaged: .* is not the setting of an index"):
        Catalog(tmp_path / "catalog")
    path.write_text(json.dumps(about | {"index": {"kind": "ivf"}}))
    with pytest.raises(UserError, match=r"index\.faiss is damaged: expected a IndexIVFFlat"):
        Catalog(tmp_path / "catalog")


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
def test_refuses_another_model_than_that_of_the_catalog(model: Path, photos: Path, tmp_path: Path) -> None:
    build(photos, tmp_path / "catalog", model, processes=1)
    other_model = save_model(tmp_path / "other", 2)
    shutil.copyfile(other_model / "weights.safetensors", tmp_path / "catalog/model/weights.safetensors")
    with pytest.raises(UserError, match="is not the model that embedded this catalog"):
        Catalog(tmp_path / "catalog").find([photos / "shelf 0/schön 0.jpg"])


@pytest.mark.slow
@pytest.mark.parametrize("version", [None, 2])
def test_builds_a_catalog_of_another_schema_version_again(
    model: Path, photos: Path, tmp_path: Path, version: int | None, embedded: list[int]
) -> None:
    build(photos, tmp_path / "catalog", model, processes=1)
    path = tmp_path / "catalog/catalog.json"
    about = json.loads(path.read_text())
    del about["schema_version"]
    path.write_text(json.dumps(about if version is None else about | {"schema_version": version}))
    message = rf"catalog\.json has schema version {version}, this version of unseen reads 3.*\n.*unseen index"
    with pytest.raises(UserError, match=message):
        Catalog(tmp_path / "catalog")
    embedded.clear()
    assert len(build(photos, tmp_path / "catalog", model, processes=1)) == COUNT
    assert sum(embedded) == COUNT


@pytest.mark.slow
def test_labels_are_those_of_folders_of_a_csv_or_of_the_existing_catalog(
    model: Path, photos: Path, tmp_path: Path, embedded: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    catalog = tmp_path / "catalog"
    (photos / "top.jpg").write_bytes(picture(60))
    assert set(build(photos, catalog, model, processes=1).labels) == {None}
    by_folder = build(photos, catalog, labels="folders", processes=1)
    expected = [None if path == "top.jpg" else str(Path(path).parent) for path in by_folder.paths]
    assert by_folder.labels == expected
    assert build(photos, catalog, processes=1).labels == expected
    table = tmp_path / "labels.csv"
    table.write_text(
        "label,path\nmilk,top.jpg\nbread,shelf 0/schön 0.jpg\njam,nowhere.jpg\n", encoding="utf-8"
    )
    by_csv = build(photos, catalog, labels=str(table), processes=1)
    of_path = dict(zip(by_csv.paths, by_csv.labels, strict=True))
    assert {path: label for path, label in of_path.items() if label} == {
        "top.jpg": "milk",
        "shelf 0/schön 0.jpg": "bread",
    }
    assert "has labels of 1 pictures that do not exist" in capsys.readouterr().err
    table.write_text("path,label\ntop.jpg,cream\n")
    assert "cream" in build(photos, catalog, processes=1).labels, "the same CSV is read again"
    assert embedded == [COUNT + 1]
    match = by_csv.find([photos / "top.jpg"], 1)[0][0]
    assert (match.path, match.label) == ("top.jpg", "milk")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("file,label\na.jpg,x\n", "has no column path"),
        ("path,label\na.jpg,\n", r":2: path or label is empty"),
        ("path,label\na.jpg,x\na.jpg,y\n", r":3: a\.jpg has the labels x and y"),
        (None, "cannot be read"),
    ],
)
def test_refuses_labels_before_embedding(
    model: Path, photos: Path, tmp_path: Path, embedded: list[int], content: str | None, message: str
) -> None:
    table = tmp_path / "labels.csv"
    if content is not None:
        table.write_text(content)
    with pytest.raises(UserError, match=message):
        build(photos, tmp_path / "catalog", model, labels=str(table), processes=1)
    assert embedded == []


@pytest.mark.slow
def test_answers_group_matches_by_product_and_can_be_unknown(model: Path, tmp_path: Path) -> None:
    photos = save_products(tmp_path / "photos")
    catalog = build(photos, tmp_path / "catalog", model, labels="folders", processes=1)
    query = photos / "product 03/2.png"
    (answer,) = catalog.identify([query], 8)
    assert answer.unknown is None
    assert [match.path for match in answer.matches] == [match.path for match in catalog.find([query], 8)[0]]
    assert answer.products[0] == ("product 03", answer.matches[0].similarity, 5)
    assert sum(product.votes for product in answer.products) == 8
    assert [p.similarity for p in answer.products] == sorted(
        (p.similarity for p in answer.products), reverse=True
    )
    threshold = catalog.threshold(0.6)
    assert (threshold.products, threshold.photos) == (12, 60)
    cosines = catalog.vectors().astype(np.float64) @ catalog.vectors().T
    labels = np.array(catalog.labels)
    cosines[labels[:, None] == labels] = -1
    assert (cosines.max(axis=1) >= threshold.similarity - 1e-6).mean() == pytest.approx(threshold.measured)
    assert threshold.measured < threshold.limit <= 0.6
    known, unknown = catalog.identify([query, picture(99)], 8, threshold)
    assert known.unknown is False
    assert all(match.similarity >= threshold.similarity for match in known.matches)
    strict = threshold._replace(similarity=1.01)
    assert catalog.identify([query, picture(99)], 8, strict) == [(True, [], [])] * 2
    assert unknown.unknown is (catalog.find([picture(99)], 1)[0][0].similarity < threshold.similarity)


@pytest.mark.slow
def test_a_threshold_needs_labels_of_all_pictures(model: Path, photos: Path, tmp_path: Path) -> None:
    catalog = tmp_path / "catalog"
    with pytest.raises(UserError, match=r"11 of 11 pictures .* have no label(.|\n)*--labels folders"):
        build(photos, catalog, model, processes=1).threshold(0.1)
    (photos / "top.jpg").write_bytes(picture(60))
    with pytest.raises(UserError, match="1 of 12 pictures"):
        build(photos, catalog, labels="folders", processes=1).threshold(0.1)
    (tmp_path / "labels.csv").write_text(
        "path,label\n" + "".join(f"{path},same\n" for path in Catalog(catalog).paths), encoding="utf-8"
    )
    with pytest.raises(UserError, match=r"All pictures of .* have the label same"):
        build(photos, catalog, labels=str(tmp_path / "labels.csv"), processes=1).threshold(0.1)


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
        "import sys, time; from pathlib import Path; from pipeline.runtime.lock import exclusive\n"
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


@pytest.mark.slow
def test_one_wrong_bit_is_an_error(model: Path, photos: Path, tmp_path: Path, embedded: list[int]) -> None:
    catalog = tmp_path / "catalog"
    complete = build(photos, catalog, model, labels="folders", processes=1)
    assert set(complete.about["files"]) == {"index.faiss", "pictures.parquet", "rivals.parquet"}
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


@pytest.mark.parametrize(
    ("value", "message"),
    [(float("nan"), r"tensors have NaN or infinity, first "), (0.0, "the same vector|has the length 0")],
)
def test_refuses_a_model_that_cannot_tell_pictures_apart(
    model: Path, photos: Path, tmp_path: Path, embedded: list[int], value: float, message: str
) -> None:
    weights = load_file(model / "weights.safetensors")
    save_file(
        {
            name: torch.full_like(tensor, value) if tensor.is_floating_point() else tensor
            for name, tensor in weights.items()
        },
        model / "weights.safetensors",
    )
    with pytest.raises(UserError, match=message):
        build(photos, tmp_path / "catalog", model, processes=1)
    assert embedded == []


def test_refuses_a_file_name_that_is_not_utf8_before_the_embedding(
    model: Path, photos: Path, tmp_path: Path, embedded: list[int]
) -> None:
    Path(os.fsdecode(os.fsencode(photos) + b"/sch\xf6n.jpg")).write_bytes(picture(60))
    with pytest.raises(UserError, match=r"file names are not valid UTF-8: sch\ufffdn\.jpg"):
        build(photos, tmp_path / "catalog", model, processes=1)
    assert embedded == []


@pytest.mark.slow
def test_builds_with_a_published_network_and_updates_without_naming_it(
    photos: Path, tmp_path: Path, embedded: list[int]
) -> None:
    weights = tmp_path / "own.safetensors"
    save_file(timm.create_model("test_resnet", num_classes=0).state_dict(), weights)
    network = Network("test_resnet.r160_in1k", weights, 32)
    catalog = build(photos, tmp_path / "catalog", network, processes=1)
    assert catalog.about["model"] == "test_resnet.r160_in1k"
    names = sorted(path.name for path in (tmp_path / "catalog/model").iterdir())
    assert names == [ABOUT, "weights.safetensors"]
    expected = Embedder(network)([photos / path for path in catalog.paths])
    assert np.abs(catalog.vectors() - expected).max() < 1e-6
    assert not (tmp_path / "catalog.unfinished").exists()
    weights.unlink()
    (photos / "one more.png").write_bytes(picture(50, "PNG"))
    build(photos, tmp_path / "catalog", processes=1)
    assert embedded == [COUNT, 1]
    other = Network("test_resnet.r160_in1k", tmp_path / "nowhere.safetensors")
    with pytest.raises(UserError, match=r"nowhere\.safetensors cannot be read"):
        build(photos, tmp_path / "catalog", other, processes=1)
    assert not (tmp_path / "catalog.unfinished").exists()
    assert len(Catalog(tmp_path / "catalog")) == COUNT + 1
