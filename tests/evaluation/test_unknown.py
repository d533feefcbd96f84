"""The threshold for unknown products: definition, error rate on drawn catalogs, and refusals."""

import numpy as np
import pytest
from scipy.stats import beta, t

from tests.vectors import unit
from unseen.evaluation.decision import FALSE, NEAREST, LeftOut, drawn, left_out
from unseen.evaluation.unknown import (
    LEAST_CLASSES,
    WINDOW,
    UncalibratedError,
    bounded_rules,
    calibrate,
    calibrate_best,
)
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


def rivals(x: np.ndarray, labels: np.ndarray) -> LeftOut:
    return left_out(x, labels, np.arange(len(labels)))[NEAREST]


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
        rates.append(float((best >= threshold.score).mean()))
        wrong += rates[-1] > share
        assert threshold.false <= threshold.false_limit <= share
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
        alone = (labels == labels[row]).sum() == 1
        assert result.known[row] == pytest.approx(
            np.nan if alone else cosines[row].max(), abs=1e-6, nan_ok=True
        )
        assert result.right[row] == (not alone and labels[cosines[row].argmax()] == labels[row])
    assert np.array_equal(result.row, np.arange(37))
    rows = drawn(labels, np.zeros(10, bool), most=12)
    part = left_out(x, labels, rows)[NEAREST]
    assert len(part.row) <= 12
    assert all((result.label == label).sum() == (part.label == label).sum() for label in set(part.label))
    assert np.array_equal(part.other, result.other[part.row])
    with pytest.raises(ValueError, match="two products"):
        rivals(x, np.zeros(37, np.int64))


def limits(of_catalog: LeftOut, products: int) -> list[tuple[float, float, float]]:
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
    assert (threshold.score, threshold.false, threshold.false_limit) == pytest.approx(expected)
    answered = of_catalog.known >= threshold.score
    assert threshold.right == pytest.approx((answered & of_catalog.right).mean())
    assert threshold.wrong == pytest.approx((answered & ~of_catalog.right).mean())
    assert (threshold.products, threshold.photos, threshold.trained) == (60, 480, None)
    assert f"at most {100 * threshold.false_limit:.3g}% then get an answer" in threshold.sentence()


def without_answers(table: LeftOut) -> LeftOut:
    """Half of the photos of known products have the least score."""
    known = np.where(np.arange(len(table.row)) % 2, table.known, -1).astype(np.float32)
    return table._replace(known=known)


def test_takes_the_rule_with_more_right_answers_at_the_threshold() -> None:
    table = rivals(Population(3).draw(60, 6), np.arange(60).repeat(6))
    worse = without_answers(table)
    tables = {"worse": worse, "same": worse, "better": table}
    assert bounded_rules(tables, 60, "worse") == {0.05: "worse", 0.1: "better", 0.2: "better"}
    assert bounded_rules(tables, 60, "better") == dict.fromkeys(FALSE[:-1], "better")
    asked = 60, 0.2, None, 0.95, None
    best = calibrate_best(tables, *asked, {})
    assert best == calibrate(table, 60, 0.2, rule="better")
    assert best.right > calibrate(worse, 60, 0.2).right
    assert calibrate_best({"worse": worse, "same": worse}, *asked, {}).rule == "worse"
    nothing = table._replace(other=np.full(len(table.row), 2, np.float32))
    assert calibrate_best({"nothing": nothing, "worse": worse}, *asked, {}).rule == "worse"
    with pytest.raises(UserError, match="to 20% with the stated confidence"):
        calibrate_best({"nothing": nothing}, *asked, {})


def test_refuses_a_share_that_the_products_do_not_allow() -> None:
    of_catalog = rivals(Population(3).draw(60, 8), np.arange(60).repeat(8))
    with pytest.raises(
        UserError, match=r"60 products with 480 photos are too few(.|\n)*ask for [\d.]+%"
    ) as raised:
        calibrate(of_catalog, 60, 0.001)
    least = float(raised.value.remedy.split("ask for ")[1].split("%")[0]) / 100
    assert calibrate(of_catalog, 60, least).false_limit <= least
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
        wrong += (best >= threshold.score).mean() > 0.15
        ignored += (best >= calibrate(of_catalog, 140, 0.15).score).mean() > 0.15
        assert (threshold.products, threshold.photos, threshold.trained) == (60, 360, 80)
        assert "trained on 80 other products" in threshold.sentence()
        over = of_catalog.other[480:] >= threshold.score
        assert threshold.false == pytest.approx(over.mean()), "matches of all products count"
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
    _, labels, trained, _ = catalog_of_a_trained_model(0, 30, 40, 6)
    assert set(labels[drawn(labels, trained, most=60)]) == set(range(30, 40))


def test_limits_wrong_products_and_refuses_where_most_answers_are_wrong() -> None:
    of_catalog = rivals(Population(3).draw(60, 8), np.arange(60).repeat(8))
    threshold = calibrate(of_catalog, 60, at_most_wrong=0.1)
    wrong = (of_catalog.known >= threshold.score) & ~of_catalog.right
    assert threshold.wrong == wrong.mean() <= threshold.wrong_limit <= 0.1
    assert threshold.wrong == 0 or not calibrate(of_catalog, 60, at_most_wrong=0.2).wrong_limit <= 0.1
    both = calibrate(of_catalog, 60, 0.1, 0.1)
    assert both.score == max(threshold.score, calibrate(of_catalog, 60, 0.1).score)
    with pytest.raises(UserError, match=r"do not limit the wrong products to 0\.01%"):
        calibrate(of_catalog, 60, at_most_wrong=0.0001)
    alone = rivals(Population(3).draw(60, 1), np.arange(60))
    with pytest.raises(UserError, match=r"No product has two photos.*\n.*Add photos"):
        calibrate(alone, 60, at_most_wrong=0.1)
    confused = of_catalog._replace(answer=(of_catalog.label + 1) % 60)
    with pytest.raises(UserError, match="Most answers would be wrong"):
        calibrate(confused, 60, 0.3)


def test_easy_products_without_a_wrong_answer_have_a_limit_by_the_number_of_products() -> None:
    of_catalog = rivals(Population(3).draw(60, 8), np.arange(60).repeat(8))
    perfect = of_catalog._replace(answer=of_catalog.label)
    threshold = calibrate(perfect, 60, at_most_wrong=0.1)
    effective = 60 * (t.ppf(0.95, 479) / t.ppf(0.95, 59)) ** 2
    assert threshold.wrong_limit == pytest.approx(beta.ppf(0.95, 1, effective))
    assert (threshold.score, threshold.wrong) == (-1, 0)


def test_given_photos_of_unknown_products_are_evidence_and_raise_the_threshold() -> None:
    of_catalog = rivals(Population(3).draw(60, 8), np.arange(60).repeat(8))
    without = calibrate(of_catalog, 60, 0.1)
    count = 100
    label, none = 60 + np.arange(count) // 5, np.full(count, np.nan, np.float32)
    for shift, name in ((-1.0, "lower"), (0.5, "higher")):
        scores = (without.score + shift + np.linspace(0, 0.01, count)).astype(np.float32)
        given = LeftOut(np.arange(count), label, scores, np.zeros(count, np.int64), none, label)
        threshold = calibrate(of_catalog, 60, 0.1, given=given)
        assert (threshold.given, threshold.given_false) == (count, (scores >= threshold.score).mean())
        assert threshold.given_false <= 0.1
        assert (threshold.score < without.score) == (name == "lower")
        assert f"Of the {count} given photos" in threshold.sentence()
