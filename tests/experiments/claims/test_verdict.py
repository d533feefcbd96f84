"""The verdict rule against its definition."""

import numpy as np
import pytest

from unseen.experiments.claims import verdict as module
from unseen.experiments.claims.verdict import Cell, Effect, of_classes, of_trainings, verdict


def drawn(seed: int, shift: float, seeds: int = 5, classes: int = 12) -> Cell:
    random = np.random.default_rng(seed)
    first = random.normal(size=(seeds, classes))
    second = first + shift + 0.1 * random.normal(size=(seeds, classes))
    images = random.integers(2, 40, classes).astype(np.float64)
    return Cell(first, second, tuple(f"c{index}" for index in range(classes)), images)


def test_the_effect_is_the_mean_over_seeds_classes_by_images_and_cells() -> None:
    cells = [drawn(0, 0.2), drawn(1, 0.4, classes=7)]
    overall, *of_cells = of_classes(cells)
    for cell, effect in zip(cells, of_cells, strict=True):
        expected = 0.0
        for first, second in zip(cell.first, cell.second, strict=True):
            expected += np.average(second - first, weights=cell.images) / len(cell.first)
        assert effect.difference == pytest.approx(expected)
        assert effect.low < expected < effect.high
    assert overall.difference == pytest.approx(np.mean([each.difference for each in of_cells]))


@pytest.mark.slow
def test_the_interval_contains_that_of_resampled_seeds_and_classes_and_that_of_seeds() -> None:
    cells = [drawn(0, 0.2), drawn(1, 0.4, classes=7)._replace(classes=tuple(f"c{n}" for n in range(5, 12)))]
    random = np.random.default_rng(3)
    resampled = np.zeros((3000, 2))
    for row in resampled:
        chosen = random.integers(12, size=12)  # the union of the classes of both cells
        runs = random.integers(5, size=5)
        for index, cell in enumerate(cells):
            places = [cell.classes.index(f"c{n}") for n in chosen if f"c{n}" in cell.classes]
            d = (cell.second - cell.first)[np.ix_(runs, places)].mean(axis=0)
            row[index] = np.average(d, weights=cell.images[places])
    seeds = [np.average(cell.second - cell.first, axis=1, weights=cell.images) for cell in cells]
    for effect, values, over in zip(
        of_classes(cells),
        [resampled.mean(axis=1), *resampled.T],
        [np.mean(seeds, axis=0), *seeds],
        strict=True,
    ):
        low, high = np.quantile(values, [0.025, 0.975])
        half = 2.776445 * over.std(ddof=1) / 5**0.5  # t of 4 degrees of freedom, 97.5%
        expected = min(low, over.mean() - half), max(high, over.mean() + half)
        width = expected[1] - expected[0]
        assert (effect.low, effect.high) == pytest.approx(expected, abs=0.08 * width)


@pytest.mark.parametrize(("of_class", "of_seed"), [(1.0, 0.0), (0.0, 1.0), (1.0, 0.5)])
def test_a_null_effect_is_rarely_called_significant(
    monkeypatch: pytest.MonkeyPatch, of_class: float, of_seed: float
) -> None:
    monkeypatch.setattr(module, "RESAMPLES", 300)
    significant = 0
    for seed in range(150):
        random = np.random.default_rng(seed)
        noise = random.normal(size=(5, 20)) + of_class * random.normal(size=20)
        second = noise + of_seed * random.normal(size=(5, 1))
        cell = Cell(np.zeros((5, 20)), second, tuple(map(str, range(20))), np.ones(20))
        significant += verdict(of_classes([cell])[0], "more") != "open"
    assert significant <= 0.09 * 150


def test_numbers_of_trainings_have_the_t_interval_over_seeds() -> None:
    differences = [np.array([0.1, 0.3, 0.2]), np.array([0.3, 0.5, 0.1])]
    overall, first, _ = of_trainings(differences)
    assert first.difference == pytest.approx(0.2)
    half = 4.302653 * 0.1 / 3**0.5  # t of 2 degrees of freedom, 97.5%
    assert (first.low, first.high) == pytest.approx((0.2 - half, 0.2 + half))
    assert overall.difference == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("low", "high", "more", "less", "equal"),
    [
        (0.1, 0.3, "confirmed", "refuted", "open"),
        (-0.3, -0.1, "refuted", "confirmed", "open"),
        (-0.1, 0.3, "open", "open", "open"),
        (-0.1, 0.1, "open", "open", "confirmed"),
        (0.05, 0.1, "confirmed", "refuted", "confirmed"),
        (0.3, 0.4, "confirmed", "refuted", "refuted"),
        (0.0, 0.1, "open", "open", "confirmed"),
    ],
)
def test_the_side_of_the_interval_decides(low: float, high: float, more: str, less: str, equal: str) -> None:
    effect = Effect((low + high) / 2, low, high)
    assert verdict(effect, "more") == more
    assert verdict(effect, "less") == less
    assert verdict(effect, "equal", 0.2) == equal


def test_refuses_cells_with_different_numbers_of_seeds() -> None:
    with pytest.raises(ValueError, match="same number of seeds"):
        of_classes([drawn(0, 0.1), drawn(1, 0.1, seeds=4)])
