"""The threshold for unknown products: definition, error rate on drawn catalogs, and refusals."""

import numpy as np
import pytest
from scipy.stats import beta, t

from tests.vectors import unit
from unseen.evaluation.unknown import LEAST_CLASSES, WINDOW, Rivals, UncalibratedError, calibrate, rivals
from unseen.runtime.errors import UserError

DIM = 24


class Population:
    """Products in families of different density: some resemble others much, and each varies differently."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.centres = self.random.standard_normal((12, DIM))
        self.spreads = self.random.uniform(0.3, 1.2, 12)

    def draw(self, products: int, photos: int) -> np.ndarray:
        """`photos` unit vectors of each of `products` new products, in the order of the products."""
        family = self.random.integers(12, size=products)
        centre = self.centres[family] + self.spreads[family, None] * self.random.standard_normal(
            (products, DIM)
        )
        variation = self.random.uniform(0.2, 0.6, products).repeat(photos)[:, None]
        noise = self.random.standard_normal((products * photos, DIM))
        return unit(centre.repeat(photos, axis=0) + variation * noise)


@pytest.mark.slow
@pytest.mark.parametrize(("products", "photos", "share"), [(100, 6, 0.05), (40, 20, 0.1), (200, 6, 0.02)])
def test_the_stated_rate_holds_in_95_percent_of_the_draws_of_products(
    products: int, photos: int, share: float
) -> None:
    labels = np.arange(products).repeat(photos)
    wrong, rates = 0, []
    for seed in range(60):
        population = Population(seed)
        catalog = population.draw(products, photos)
        try:
            threshold = calibrate(rivals(catalog, labels), products, share)
        except UserError:
            continue
        best = (population.draw(3000, 1) @ catalog.T).max(axis=1)
        rates.append(float((best >= threshold.similarity).mean()))
        wrong += rates[-1] > share
        assert threshold.measured <= threshold.limit <= share
    assert len(rates) >= 20
    assert wrong <= 3, "5% of 60"
    assert np.mean(rates) > share / 8, "the threshold is not needlessly high"


def test_rivals_equal_the_definition() -> None:
    labels = np.random.default_rng(0).permutation(np.concatenate([np.arange(9).repeat(4), [9]]))
    x = Population(1).draw(37, 1)
    result = rivals(x, labels)
    cosines = x.astype(np.float64) @ x.T
    np.fill_diagonal(cosines, -2)
    for row in range(37):
        others = np.where(labels == labels[row], -2, cosines[row])
        assert result.other[row] == pytest.approx(others.max(), abs=1e-6)
        assert result.rival[row] == labels[others.argmax()]
        same = np.where(labels == labels[row], cosines[row], -2).max()
        assert result.same[row] == pytest.approx(same if same > -2 else np.nan, abs=1e-6, nan_ok=True)
    assert np.array_equal(result.row, np.arange(37))
    part = rivals(x, labels, most=12)
    assert len(part.row) <= 12
    assert all((result.label == label).sum() == (part.label == label).sum() for label in set(part.label))
    assert np.array_equal(part.other, result.other[part.row])
    with pytest.raises(ValueError, match="two products"):
        rivals(x, np.zeros(37, np.int64))


def limits(of_catalog: Rivals, products: int) -> list[tuple[float, float, float]]:
    """(threshold, R, limit) by the formulas of unknown.py, one threshold after the other."""
    photos = len(of_catalog.row)
    table = []
    for threshold in sorted(set(of_catalog.other.tolist()), reverse=True):
        over = of_catalog.other >= threshold
        rate = over.mean()
        m = np.zeros((products, products))
        np.add.at(m, (of_catalog.label[over], of_catalog.rival[over]), 1)
        s, n = m.sum(axis=1), np.bincount(of_catalog.label, minlength=products)
        v = products / (products - 1) * ((s - rate * n) ** 2).sum() / photos**2 + (m * m.T).sum() / photos**2
        deff = max(1.0, v / (rate * (1 - rate) / photos)) if rate < 1 else np.inf
        table.append((threshold, rate, deff, np.count_nonzero(s)))
        if rate > 0.5:
            break
    first = next(place for place, row in enumerate(table) if row[3] >= LEAST_CLASSES)
    result = []
    for place, (threshold, rate, _, _) in enumerate(table):
        window = [
            row[2] for at, row in enumerate(table) if at >= place and (row[1] <= WINDOW * rate or at <= first)
        ]
        n = photos / max(window) * (t.ppf(0.95, photos - 1) / t.ppf(0.95, products - 1)) ** 2
        limit = beta.ppf(0.95, rate * n + 1, (1 - rate) * n) * products / (products - 1)
        result.append((threshold, rate, min(1.0, limit)))
    return result


def test_the_threshold_equals_the_definition() -> None:
    labels = np.arange(60).repeat(8)
    of_catalog = rivals(Population(3).draw(60, 8), labels)
    table = limits(of_catalog, 60)
    expected = None
    for row in table:
        if row[2] > 0.1:
            break
        expected = row
    assert expected is not None
    threshold = calibrate(of_catalog, 60, 0.1)
    assert (threshold.similarity, threshold.measured, threshold.limit) == pytest.approx(expected)
    assert threshold.matched == pytest.approx((of_catalog.same >= threshold.similarity).mean())
    assert (threshold.products, threshold.photos, threshold.trained) == (60, 480, None)
    assert "At most 0.1 of the photos of unknown products" in threshold.sentence()


def test_refuses_a_share_that_the_products_do_not_allow() -> None:
    of_catalog = rivals(Population(3).draw(60, 8), np.arange(60).repeat(8))
    with pytest.raises(
        UserError, match=r"60 products with 480 photos are too few(.|\n)*ask for [\d.]+%"
    ) as raised:
        calibrate(of_catalog, 60, 0.001)
    least = float(raised.value.remedy.split("ask for ")[1].split("%")[0]) / 100
    assert calibrate(of_catalog, 60, least).limit <= least
    with pytest.raises(UserError, match="between 0 and 1"):
        calibrate(of_catalog, 60, 1.0)
    few = rivals(Population(3).draw(3, 2), np.arange(3).repeat(2))
    with pytest.raises(UserError, match="3 products with 6 photos are too few"):
        calibrate(few, 3, 0.05)


def catalog_of_a_trained_model(
    seed: int, trained: int, products: int, photos: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Vectors, labels, and which products are trained; and vectors of unknown products. Training moves the
    photos of its products together, and its products away from others."""
    population = Population(seed)
    x, unknown = population.draw(products, photos), population.draw(3000, 1)
    centres = unit(population.random.standard_normal((trained, DIM)))
    noise = population.random.standard_normal((trained * photos, DIM))
    x[: trained * photos] = unit(centres.repeat(photos, axis=0) + 0.02 * noise)
    return x, np.arange(products).repeat(photos), np.arange(products) < trained, unknown


def test_the_stated_rate_holds_for_a_model_that_was_trained_on_a_part_of_the_products() -> None:
    wrong = ignored = 0
    for seed in range(8):
        x, labels, trained, unknown = catalog_of_a_trained_model(seed, 80, 140, 6)
        best = (unknown @ x.T).max(axis=1)
        of_catalog = rivals(x, labels)
        threshold = calibrate(of_catalog, 140, 0.15, trained=trained)
        wrong += (best >= threshold.similarity).mean() > 0.15
        ignored += (best >= calibrate(of_catalog, 140, 0.15).similarity).mean() > 0.15
        assert (threshold.products, threshold.photos, threshold.trained) == (60, 360, 80)
        assert "trained on 80 other products" in threshold.sentence()
        over = of_catalog.other[480:] >= threshold.similarity
        assert threshold.measured == pytest.approx(over.mean()), "matches of all products count"
    assert wrong == 0
    assert ignored >= 6, "photos of training classes understate the rate"


def test_refuses_to_calibrate_on_products_that_the_model_was_trained_on() -> None:
    x, labels, _, _ = catalog_of_a_trained_model(0, 40, 40, 6)
    of_catalog = rivals(x, labels)
    for unseen in (0, 7):
        with pytest.raises(UncalibratedError, match=r"not calibrated for this model(.|\n)*without --ship"):
            calibrate(of_catalog, 40, 0.2, trained=np.arange(40) >= unseen)
    with pytest.raises(UserError, match="8 products with 48 photos that the model was not"):
        calibrate(of_catalog, 40, 0.01, trained=np.arange(40) >= 8)
    assert calibrate(of_catalog, 40, 0.5).trained is None
    assert "training classes of the model are unknown" in calibrate(of_catalog, 40, 0.5).sentence()


def test_draws_products_that_the_model_was_not_trained_on_first() -> None:
    x, labels, trained, _ = catalog_of_a_trained_model(0, 30, 40, 6)
    assert set(rivals(x, labels, most=60, trained=trained).label) == set(range(30, 40))
