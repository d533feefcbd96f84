"""A catalog returns the nearest pictures, has the index of its build, and refuses invalid inputs before it
changes a file."""

import json
import shutil
import threading
from pathlib import Path

import faiss
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from tests.photos import COUNT, picture, save_model
from unseen.evaluation.settings import Flat, Hnsw, Ivf, IvfPq, Setting
from unseen.frozen.encoded import pictures_of
from unseen.frozen.network import ABOUT, Network
from unseen.networks import lite0
from unseen.networks.published_network import timm
from unseen.runtime.digest import sha256_of
from unseen.runtime.errors import UserError
from unseen.runtime.sealed import write_sealed
from unseen_search.catalog import Catalog, Embedder, build
from unseen_search.catalog.answers import Answer
from unseen_search.catalog.files import read_about


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
@pytest.mark.slow
def test_reads_one_picture_and_refuses_other_types(model: Path, photos: Path, tmp_path: Path) -> None:
    catalog = build(photos, tmp_path / "catalog", model, processes=1)
    path = photos / catalog.paths[0]
    for one in (path, str(path), path.read_bytes(), (name for name in [path])):
        assert [matches[0].path for matches in catalog.find(pictures_of(one), 1)] == [catalog.paths[0]]
    assert catalog.find(str(path), 1) == catalog.find([path], 1)
    torch.set_default_dtype(torch.float64)
    try:
        assert np.array_equal(Embedder(model)(path), Embedder(tmp_path / "catalog/model")([path]))
        assert Catalog(tmp_path / "catalog").find([path], 1)[0][0].path == catalog.paths[0]
    finally:
        torch.set_default_dtype(torch.float32)
    for wrong, kind in ((Image.new("L", (2, 2)), "Image"), ([np.zeros(3)], "ndarray"), ([None], "NoneType")):
        with pytest.raises(UserError, match=f"A picture is a {kind}, expected a path"):
            pictures_of(wrong)


def test_a_catalog_needs_neither_model_nor_photos(model: Path, photos: Path, tmp_path: Path) -> None:
    expected = build(photos, tmp_path / "catalog", model, processes=1).find(
        [photos / "shelf 0/schön 0.jpg"], 3
    )
    shutil.rmtree(model)
    (tmp_path / "catalog").rename(tmp_path / "moved")
    assert Catalog(tmp_path / "moved").find([photos / "shelf 0/schön 0.jpg"], 3) == expected


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
    shutil.copytree(other_model, catalog / "model", dirs_exist_ok=True)
    with pytest.raises(UserError, match=r"is not the model that embedded this catalog(.|\n)*--model"):
        build(photos, catalog, processes=1)


@pytest.mark.slow
@pytest.mark.parametrize("setting", [Ivf(probes=100), Hnsw(neighbours=4)], ids=["ivf", "hnsw"])
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
    about = read_about(tmp_path / "catalog")
    assert about.pop("index") == {"kind": "flat"}
    path.write_text(json.dumps(about))
    path.write_text(json.dumps(about | {"index": {"kind": "tree"}}))
    with pytest.raises(UserError, match=r"catalog\.json is damaged: .* is not the setting of an index"):
        Catalog(tmp_path / "catalog")
    write_sealed(path, about | {"index": {"kind": "ivf"}})
    with pytest.raises(UserError, match=r"index\.faiss is damaged: expected a IndexIVFFlat"):
        Catalog(tmp_path / "catalog")


@pytest.mark.slow
def test_refuses_another_model_than_that_of_the_catalog(model: Path, photos: Path, tmp_path: Path) -> None:
    build(photos, tmp_path / "catalog", model, processes=1)
    other_model = save_model(tmp_path / "other", 2)
    shutil.copytree(other_model, tmp_path / "catalog/model", dirs_exist_ok=True)
    with pytest.raises(UserError, match="is not the model that embedded this catalog"):
        Catalog(tmp_path / "catalog").find([photos / "shelf 0/schön 0.jpg"])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), r"tensors have NaN or infinity, first "),
        (0.0, "the vector of a picture has the length 0"),
        (0.1, "two different pictures get the same vector"),
    ],
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
    recipe = json.loads((model / "recipe.json").read_text("utf-8"))
    recipe["weights_sha256"]["weights"] = sha256_of(model / "weights.safetensors")
    (model / "recipe.json").write_text(json.dumps(recipe), "utf-8")
    with pytest.raises(UserError, match=message):
        build(photos, tmp_path / "catalog", model, processes=1)
    assert embedded == []
    if np.isnan(value):
        with pytest.raises(UserError, match=rf"weights\.safetensors cannot embed pictures: .*{message}"):
            Embedder(model)


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


def test_threads_that_search_at_the_same_time_get_the_answers_of_one(
    model: Path, photos: Path, tmp_path: Path
) -> None:
    catalog = build(photos, tmp_path / "catalog", model, processes=1)
    vectors, times = catalog.vectors(), 300
    expected = [catalog.answers(vector[None], 4, "nearest") for vector in vectors]
    answers: list[list[list[Answer]]] = [[] for _ in vectors]

    def search(row: int) -> None:
        for _ in range(times):
            answers[row].append(catalog.answers(vectors[row][None], 4, "nearest"))

    # daemons: a thread that waits for ever would keep this process
    threads = [threading.Thread(target=search, args=(row,), daemon=True) for row in range(len(vectors))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [len(own) for own in answers] == [times] * COUNT
    assert answers == [[first] * times for first in expected]
