"""The rate of false matches of a catalog without labels."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.evaluation.test_unknown import Population, rivals
from tests.photos import picture, save_model
from tests.vectors import unit
from unseen.evaluation.index.index import build as build_index
from unseen.evaluation.settings import Ivf
from unseen.evaluation.unknown import UncalibratedError, calibrate
from unseen.frozen.training_classes import write_training_classes
from unseen.runtime.errors import UserError
from unseen_search.catalog import Catalog, build
from unseen_search.catalog.duplicates import duplicates
from unseen_search.catalog.unlabelled import rivals_without_labels


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """40 pictures, and copies of the first five in another format."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number:02d}.png").write_bytes(picture(number, "PNG"))
    for number in range(5):
        copied = Image.open(io.BytesIO(picture(number, "PNG")))
        copied.save(folder / f"{number:02d} copy.jpg", quality=95, subsampling=0)
    return folder


@pytest.mark.slow
def test_each_photo_with_its_near_duplicates_is_a_product(photos: Path, tmp_path: Path) -> None:
    model = save_model(tmp_path / "model", 1)
    catalog = build(photos, tmp_path / "catalog", model, processes=1)
    groups = duplicates(catalog).groups
    assert [len(group.pictures) for group in groups] == [2] * 5
    copies = {frozenset(catalog.paths.index(copy.path) for copy in group.pictures) for group in groups}
    cosines = catalog.vectors().astype(np.float64) @ catalog.vectors().T
    np.fill_diagonal(cosines, -1)
    for first, second in copies:
        cosines[first, second] = cosines[second, first] = -1
    result = rivals_without_labels(catalog.index, photos, catalog.paths)
    assert result.other == pytest.approx(cosines.max(axis=1), abs=1e-6)
    assert {frozenset(np.flatnonzero(result.label == label).tolist()) for label in result.label} >= copies
    assert len(set(result.label)) == 40
    assert np.isnan(result.known).all()
    drawn = rivals_without_labels(catalog.index, photos, catalog.paths, most=20)
    assert np.array_equal(drawn.other, result.other[drawn.row])

    threshold = catalog.threshold(0.6)
    assert (threshold.products, threshold.photos, threshold.labelled) == (40, 45, False)
    assert threshold.right is None
    assert (cosines.max(axis=1) >= threshold.score - 1e-6).mean() == pytest.approx(threshold.false)
    assert "higher than necessary. Labels (--labels) lower it." in threshold.sentence()
    write_training_classes(model, ["elsewhere"])
    build(photos, tmp_path / "catalog", model, processes=1)
    with pytest.raises(UncalibratedError, match=r"trained on 1 classes(.|\n)*--labels folders"):
        Catalog(tmp_path / "catalog").threshold(0.6)


def test_states_what_a_threshold_without_labels_lacks(tmp_path: Path) -> None:
    photos, model = tmp_path / "photos", save_model(tmp_path / "model", 1)
    photos.mkdir()
    for number in range(2):
        (photos / f"{number}.png").write_bytes(picture(number, "PNG"))
    two = build(photos, tmp_path / "catalog", model, processes=1)
    with pytest.raises(
        UserError, match=r"2 of 2 pictures .*: wrong products cannot be measured\.\n.*--labels"
    ):
        two.threshold(0.6, at_most_wrong=0.1)
    (photos / "1.png").unlink()
    one = build(photos, tmp_path / "catalog", processes=1, remove=True)
    with pytest.raises(UserError, match=r"catalog has one picture\.\n.*Add pictures"):
        one.threshold(0.6)
    with pytest.raises(ValueError, match="two photos or more"):
        rivals_without_labels(one.index, photos, one.paths)


def test_the_neighbours_that_an_approximate_index_misses_are_no_rivals(tmp_path: Path) -> None:
    x = unit(np.random.default_rng(0).standard_normal((40, 6))).astype(np.float32)
    index = build_index(x, np.arange(40), Ivf(lists=20, probes=1))
    result = rivals_without_labels(index, tmp_path, [f"{number}.png" for number in range(40)])
    cosines = x @ x.T
    np.fill_diagonal(cosines, -1)
    alone = result.other == -1
    assert 0 < alone.sum() < 40
    assert np.array_equal(result.rival[alone], np.flatnonzero(alone)), "a photo alone in its cell"
    others = np.flatnonzero(~alone)
    np.testing.assert_allclose(result.other[others], cosines[others, result.rival[others]], atol=1e-6)


def test_the_rate_without_labels_is_at_most_that_with_labels() -> None:
    labels, higher = np.arange(100).repeat(3), 0
    for seed in range(4):
        population = Population(seed)
        x = population.draw(100, 3)
        best = (population.draw(1000, 1) @ x.T).max(axis=1)
        try:
            without = calibrate(rivals(x, np.arange(300)), 300, 0.1)
        except UserError:
            continue
        assert (best >= without.score).mean() <= 0.1
        higher += without.score > calibrate(rivals(x, labels), 100, 0.1).score
    assert higher >= 3
