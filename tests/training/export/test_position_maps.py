"""The positions of a small real network: the images, the matches, the region of the input, equal bytes."""

import functools
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.methods.small import recipe
from unseen.data.embeddings import Embeddings
from unseen.data.embeddings import write as write_embeddings
from unseen.data.loader import EvalLoader, normalize
from unseen.data.positions import Match, PositionMap, read
from unseen.data.shard_writer import ShardWriter
from unseen.data.shards import Shards
from unseen.methods.artifact import load_method, save_recipe, save_weights
from unseen.methods.baseline import Baseline
from unseen.methods.build import initial_method
from unseen.methods.explain import transport
from unseen.methods.explain.contribution import contributions
from unseen.methods.method import Outputs
from unseen.training.export import position_maps as module
from unseen.training.export.position_maps import choose_queries, export_positions

TRAIN, TEST, CLASSES = 4, 24, 6


def make_shards(directory: Path) -> Shards:
    """Four train images and 24 test images of six classes; the first three test images are not queries, the
    last three not in the gallery."""
    directory.mkdir(parents=True)
    generator = np.random.default_rng(0)
    with ShardWriter(directory, [f"class-{c}" for c in range(CLASSES + 1)], 2**24) as writer:
        for row in range(TRAIN + TEST):
            octets, size = io.BytesIO(), (40 + row % 3, 44, 3)
            Image.fromarray(generator.integers(0, 256, size, dtype=np.uint8)).save(octets, "JPEG")
            label = CLASSES if row < TRAIN else (row - TRAIN) % CLASSES
            sides = {"is_query": row >= TRAIN + 3, "is_gallery": row < TRAIN + TEST - 3}
            split = "train" if row < TRAIN else "test"
            writer.add(octets.getvalue(), label, split, f"{row}.jpg", 44, size[0], **sides)
        writer.finish({"dataset": "tiny"})
    return Shards(directory)


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def shards(tmp_path: Path) -> Shards:
    return make_shards(tmp_path / "shards")


def embedded(shards: Shards, dim: int = 8) -> Embeddings:
    rows = shards.rows("test")
    vectors = unit(np.random.default_rng(1).normal(size=(len(rows), dim)))
    return Embeddings(rows, shards.labels[rows], vectors, shards.is_query[rows], shards.is_gallery[rows])


class TestQueries:
    def test_matches_are_the_nearest_right_and_wrong_images_of_the_gallery(self, shards: Shards) -> None:
        test = embedded(shards)
        queries = choose_queries(shards, test)
        assert len(queries) == module.QUERIES
        for query in queries:
            place = test.row_id.tolist().index(query.row_id)
            assert test.is_query[place]
            best: dict[bool, tuple[float, int]] = {}
            for other in range(TEST):
                if other == place or not test.is_gallery[other]:
                    continue
                right = bool(test.label[other] == test.label[place])
                pair = (float(test.embedding[other] @ test.embedding[place]), int(test.row_id[other]))
                best[right] = max(best.get(right, pair), pair)
            for right, match in ((True, query.right), (False, query.wrong)):
                assert match == Match(best[right][1], round(best[right][0], 6))

    def test_all_methods_have_the_same_queries(self, shards: Shards) -> None:
        test = embedded(shards)
        other = test._replace(embedding=unit(np.random.default_rng(2).normal(size=(TEST, 5))))
        first, second = choose_queries(shards, test), choose_queries(shards, other)
        assert [query.row_id for query in first] == [query.row_id for query in second]
        assert first != second

    def test_a_query_without_a_right_match_is_skipped(self, shards: Shards) -> None:
        test = embedded(shards)
        first = choose_queries(shards, test)[0].row_id
        shards.labels = shards.labels.copy()
        shards.labels[first] = CLASSES  # the only test image of its class
        assert first not in [query.row_id for query in choose_queries(shards, test)]


def project(tmp_path: Path, name: str) -> tuple[Path, Path, Path]:
    """Shards, a model of one method, and embeddings of its test images."""
    shards, model = make_shards(tmp_path / "shards"), tmp_path / "model"
    settings = recipe(name)
    method = initial_method(settings, 3, TRAIN, 0)
    if name == "gsp":
        method.head.pooling.gsp.initialized.fill_(True)
    model.mkdir()
    save_recipe(model / "recipe.json", settings, "tiny", 0, 3, TRAIN)
    save_weights(model / "weights.safetensors", method)
    test = embedded(shards, method.dim)
    write_embeddings(
        tmp_path / "test.arrow", test.row_id, test.label, test.embedding, test.is_query, test.is_gallery
    )
    return shards.directory, model, tmp_path / "test.arrow"


def inputs_of(shards: Path, model: Path, row: int) -> tuple[Any, torch.Tensor]:
    loaded = _loaded(model)
    ((images, _),) = EvalLoader(Shards(shards), np.array([row]), loaded.recipe.input, 1)
    return loaded.method, normalize(images, *loaded.method.statistics(loaded.recipe.input))


_loaded = functools.cache(load_method)


@pytest.mark.slow
def test_the_sample_has_the_maps_of_its_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IMAGES", 10)
    monkeypatch.setattr(module, "BATCH", 4)
    shards, model, embeddings = project(tmp_path, "gsp")
    export_positions(shards, model, embeddings, tmp_path / "out.arrow")
    positions = read(tmp_path / "out.arrow")
    whole = [each for each in positions.maps if each.reference is None and not each.detail]
    rows = [each.row_id for each in whole]
    queries = {query.row_id for query in positions.queries}
    assert rows == sorted(rows)
    assert len(set(rows) - queries) <= 10 <= len(set(rows)) <= 14
    assert queries <= set(rows)
    assert [each.name for each in whole] == ["transported mass", "contribution"] * len(set(rows))
    for each in whole[:4]:
        method, images = inputs_of(shards, model, each.row_id)
        (mass,) = transport.position_weights(method, images)
        own = contributions(method, images)
        assert own is not None
        expected = mass if each.name == "transported mass" else own
        np.testing.assert_allclose(each.weights.ravel(), expected.weights[0].detach(), atol=1e-5)
        assert (each.source, each.label) == (f"{each.row_id}.jpg", (each.row_id - TRAIN) % CLASSES)
    assert any(each.prototype is not None for each in whole)


@pytest.mark.slow
def test_queries_and_matches_have_contributions_to_their_similarity(tmp_path: Path) -> None:
    shards, model, embeddings = project(tmp_path, "baseline")
    export_positions(shards, model, embeddings, tmp_path / "out.arrow")
    positions, test = read(tmp_path / "out.arrow"), embedded(Shards(shards))
    of_pair = {(each.row_id, each.reference): each for each in positions.maps}
    for query in positions.queries[:2]:
        for match in (query.right, query.wrong):
            assert match is not None
            for row, reference in ((query.row_id, match.row_id), (match.row_id, query.row_id)):
                method, images = inputs_of(shards, model, row)
                vector = torch.from_numpy(test.embedding[test.row_id.tolist().index(reference)][None].copy())
                expected = contributions(method, images, vector)
                assert expected is not None
                weights = of_pair[row, reference].weights
                np.testing.assert_allclose(weights.ravel(), expected.weights[0].detach(), atol=1e-5)


@pytest.mark.slow
def test_a_method_without_contributions_has_its_own_map_of_the_matches(tmp_path: Path) -> None:
    shards, model, embeddings = project(tmp_path, "irt")
    export_positions(shards, model, embeddings, tmp_path / "out.arrow")
    maps = read(tmp_path / "out.arrow").maps
    assert {each.name for each in maps} == {"class token"}
    assert any(each.reference is not None for each in maps)


@pytest.mark.slow
def test_a_method_that_normalises_in_another_way_has_a_remark_and_no_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def describe(method: Baseline, images: torch.Tensor) -> Outputs:
        vector = method.head(method.backbone(images)).vector
        return Outputs(vector / vector.norm(dim=1, keepdim=True))

    monkeypatch.setattr(Baseline, "describe", describe)
    shards, model, embeddings = project(tmp_path, "baseline")
    export_positions(shards, model, embeddings, tmp_path / "out.arrow")
    positions = read(tmp_path / "out.arrow")
    assert len(positions.queries) == module.QUERIES
    assert not positions.maps
    assert capsys.readouterr().err.count("Baseline returns an embedding that `unit` did not normalise") == 1


@pytest.mark.parametrize(
    ("function", "kind"), [("contributions", "contributions"), ("position_functions", "maps")]
)
def test_a_map_that_fails_in_a_part_from_outside_has_a_remark_and_costs_no_other(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    function: str,
    kind: str,
) -> None:
    def fails(*_: Any) -> None:
        raise NotImplementedError("no backward pass")

    monkeypatch.setattr(module, "IMAGES", 10)
    monkeypatch.setattr(module, function, fails)
    shards, model, embeddings = project(tmp_path, "gsp")
    with pytest.raises(NotImplementedError):
        export_positions(shards, model, embeddings, tmp_path / "out.arrow")
    assert not (tmp_path / "out.arrow").exists()
    monkeypatch.setattr(module, "outside_fields", lambda recipe: ["pooling.module"])
    export_positions(shards, model, embeddings, tmp_path / "out.arrow")
    names = {each.name for each in read(tmp_path / "out.arrow").maps}
    assert names
    assert ("contribution" in names) == (kind == "maps")
    remark = f"export: no {kind}: NotImplementedError: no backward pass"
    assert capsys.readouterr().err.count(remark) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["crt", "multihead"])
def test_only_queries_have_maps_of_prototypes_and_points(tmp_path: Path, name: str) -> None:
    shards, model, embeddings = project(tmp_path, name)
    export_positions(shards, model, embeddings, tmp_path / "out.arrow")
    positions = read(tmp_path / "out.arrow")
    details: list[PositionMap] = [each for each in positions.maps if each.detail]
    assert {each.row_id for each in details} == {query.row_id for query in positions.queries}
    assert all((each.point is not None) == (name == "multihead") for each in details)


@pytest.mark.slow
def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    shards, model, embeddings = project(tmp_path, "crt")
    for name in ("first", "second"):
        export_positions(shards, model, embeddings, tmp_path / name)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
