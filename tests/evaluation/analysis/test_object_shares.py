"""The share of weight on the object equals its definition, and that of uniform weights is the area."""

from pathlib import Path

import numpy as np
import pytest

from unseen.data.ingest.settings import PartsSource
from unseen.data.ingest.sources import parts
from unseen.data.positions import PositionMap, Positions, write
from unseen.evaluation.analysis.analyze import AnalyzedNetwork, numbers
from unseen.evaluation.analysis.object_shares import coverage, object_share_rows, object_shares

SMALL = PartsSource(train_classes=4, test_classes=4, images_per_class=4)
WHOLE = (0.0, 0.0, 1.0, 1.0)


def of(weights: object, name: str = "map", **fields: object) -> PositionMap:
    values: dict[str, object] = {"row_id": 0, "label": 0, "source": "a", "region": WHOLE, **fields}
    return PositionMap(name=name, weights=np.array(weights, np.float32), **values)


def test_coverage_is_the_mean_of_the_mask_in_each_cell() -> None:
    mask = np.random.default_rng(0).random((12, 20))
    cells = coverage(mask, (0.25, 0.5, 0.75, 1.0), 3, 5)  # 6 x 10 pixels: cells of 2 x 2
    for row in range(3):
        for column in range(5):
            part = mask[6 + 2 * row : 8 + 2 * row, 5 + 2 * column : 7 + 2 * column]
            assert cells[row, column] == pytest.approx(part.mean())


def test_a_cell_contains_shares_of_pixels() -> None:
    assert coverage(np.array([[1.0, 0.0, 0.0]]), WHOLE, 1, 2)[0].tolist() == pytest.approx([2 / 3, 0])
    assert coverage(np.array([[0.0, 1.0]]), WHOLE, 1, 4)[0].tolist() == [0, 0, 1, 1]


def test_share_is_the_part_of_the_positive_weight() -> None:
    mask = np.array([[1.0, 0.0], [0.5, 0.0]])
    (share,) = object_shares(Positions((of([[3, 1], [2, -9]]),), ()), lambda source: mask)
    assert share.share == pytest.approx((3 + 2 * 0.5) / (3 + 1 + 2))
    assert share.area == pytest.approx(1.5 / 4)
    assert (share.map, share.images) == ("map", 1)


def test_maps_of_one_prototype_or_one_pair_are_excluded() -> None:
    maps = (of([[1, 1]]), of([[1, 0]], "prototype 1", detail=True), of([[1, 0]], "contribution", reference=4))
    assert [share.map for share in object_shares(Positions(maps, ()), lambda source: np.eye(2))] == ["map"]


def test_an_image_without_a_positive_weight_is_excluded() -> None:
    maps = (of([[-1, 0]], row_id=0), of([[1, 0]], row_id=1, label=1))
    (share,) = object_shares(Positions(maps, ()), lambda source: np.array([[1.0, 0.0]]))
    assert (share.share, share.images) == (1.0, 1)


def test_the_interval_contains_the_mean_of_the_classes() -> None:
    generator = np.random.default_rng(1)
    maps = tuple(
        of([[value, 1 - value]], row_id=row, label=row // 5)
        for row, value in enumerate(generator.uniform(0.3, 0.7, 40))
    )
    (share,) = object_shares(Positions(maps, ()), lambda source: np.array([[1.0, 0.0]]))
    assert 0.3 < share.low < share.share < share.high < 0.7


@pytest.mark.slow
def test_uniform_weights_get_the_area_and_weights_on_the_creature_more(tmp_path: Path) -> None:
    looks, maps = parts.classes(SMALL), []
    for row, name in enumerate(f"test/c00{label}/{image:04d}.jpg" for label in (4, 5) for image in range(4)):
        mask = parts.creature_mask(SMALL, looks, name)
        place = {"row_id": row, "label": row // 4, "source": name}
        for kind, weights in (
            ("creature", coverage(mask, WHOLE, 8, 8)),
            ("uniform", np.ones((8, 8))),
            ("background", 1 - coverage(mask, WHOLE, 8, 8)),
        ):
            maps.append(of(weights, kind, **place))
    write(tmp_path / "parts/ms/0.arrow", Positions(tuple(maps), ()))
    run = ("parts", "ms", 0)
    creature, uniform, background = object_share_rows(tmp_path, run, parts.creature_masks(SMALL))
    assert uniform["share"] == pytest.approx(uniform["area"], rel=1e-5)
    assert creature["share"] > uniform["share"] + 0.3
    assert background["share"] < uniform["share"] - 0.1
    for row in (creature, uniform, background):
        assert (row["dataset"], row["method"], row["seed"]) == run
    selected = AnalyzedNetwork({"network": "selected", **_HEADLINE}, {}, {})
    values = numbers([selected], [creature, uniform])
    assert values["weight_on_object"] == creature["share"]
    assert values["object_area"] == creature["area"]


_HEADLINE = {"embedding_density": 0.5, "spectral_decay": 0.5, "transfer_map_l2": None}
