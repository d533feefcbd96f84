"""Rules of products and photos that are left out, against brute force in float64."""

import numpy as np
import pytest
from sklearn.covariance import ledoit_wolf_shrinkage

from tests.evaluation.test_unknown import Population
from unseen.evaluation.curve import curve, lines, of_plain, picture, plain
from unseen.evaluation.decision import (
    MEAN,
    NEAREST,
    RULES,
    VOTES,
    VOTING,
    WHITENED,
    WITH_MARGIN,
    choose,
    drawn,
    left_out,
    means,
)

KINDS = (NEAREST, VOTING, MEAN, WHITENED)


def scores(
    kind: str, x: np.ndarray, labels: np.ndarray, query: np.ndarray, catalog: np.ndarray | None
) -> np.ndarray:
    """s_c by the formulas of decision.py. catalog: the vectors that give N, r and tr T; None: x."""
    products = np.unique(labels)
    cosines = x @ query
    if kind == NEAREST:
        return np.array([cosines[labels == product].max() for product in products])
    if kind == VOTING:
        best = np.argsort(-cosines)[:VOTES]
        votes = [[cosines[row] for row in best if labels[row] == product] for product in products]
        return np.array([sum(max(vote, 0) for vote in own) / VOTES for own in votes])
    centre, inverse = np.zeros(x.shape[1]), np.eye(x.shape[1])
    if kind == WHITENED:
        centre = x.mean(axis=0)
        whole = x if catalog is None else catalog
        r = max(ledoit_wolf_shrinkage(whole), 1 / len(whole))
        covariance = (x - centre).T @ (x - centre) / len(whole)
        shrunk = (1 - r) * covariance + r * np.var(whole, axis=0).mean() * np.eye(x.shape[1])
        inverse = np.linalg.inv(np.linalg.cholesky(shrunk))
    mapped = inverse @ (query - centre)
    directions = [inverse @ (x[labels == product].mean(axis=0) - centre) for product in products]
    return np.array([mapped @ m / np.linalg.norm(mapped) / np.linalg.norm(m) for m in directions])


def clustered(products: int, photos: int) -> tuple[np.ndarray, np.ndarray]:
    return Population(7).draw(products, photos), np.arange(products).repeat(photos)


@pytest.mark.parametrize("margin", ["", WITH_MARGIN])
@pytest.mark.parametrize("kind", KINDS)
def test_photos_that_are_left_out_equal_a_catalog_without_them(kind: str, margin: str) -> None:
    x, labels = clustered(14, 5)
    labels[-4:] = 12  # the last product has one photo
    rule = kind + margin
    table = left_out(x, labels, np.arange(len(labels)), [rule])[rule]
    x = x.astype(np.float64)
    assert np.flatnonzero(np.isnan(table.known)).tolist() == [65]
    for row in (0, 17, 44, 65, 69):
        cases = [(labels != labels[row], table.other[row], table.rival[row])]
        if row != 65:
            cases.append((np.arange(len(labels)) != row, table.known[row], table.answer[row]))
        for remaining, value, place in cases:
            own = scores(kind, x[remaining], labels[remaining], x[row], x)
            order = np.argsort(-own)
            expected = own[order[0]] - (own[order[1]] if margin else 0)
            assert value == pytest.approx(expected, abs=2e-5)
            assert place == np.unique(labels[remaining])[order[0]]


@pytest.mark.parametrize("kind", [MEAN, WHITENED])
def test_scores_of_new_photos_equal_the_definition(kind: str) -> None:
    x, labels = clustered(20, 6)
    queries = Population(8).draw(9, 1)
    of_photos = means(kind, x, labels, np.arange(len(labels))).scores(queries)
    for query, row in zip(queries.astype(np.float64), of_photos, strict=True):
        assert row == pytest.approx(scores(kind, x.astype(np.float64), labels, query, None), abs=1e-4)
    assert of_photos.max() <= 1


@pytest.mark.parametrize("photos", [1, 2])
@pytest.mark.parametrize("dim", [1, 3, 24])
def test_two_products_with_one_or_two_photos_are_whitened(photos: int, dim: int) -> None:
    x = np.random.default_rng(3).standard_normal((2, dim)).astype(np.float32)
    x = np.repeat(x / np.linalg.norm(x, axis=1, keepdims=True), photos, axis=0)
    labels = np.arange(2).repeat(photos)
    table = left_out(x, labels, np.arange(len(x)), [WHITENED])[WHITENED]
    queries = Population(8).draw(9, 1)[:, :dim]
    of_photos = means(WHITENED, x, labels, np.arange(len(x))).scores(queries)
    x = x.astype(np.float64)
    for query, row in zip(queries.astype(np.float64), of_photos, strict=True):
        assert row == pytest.approx(scores(WHITENED, x, labels, query, None), abs=1e-4)
    assert table.answer.tolist() == labels.tolist() or photos == 1
    assert table.rival.tolist() == (1 - labels).tolist()
    assert np.isnan(table.known).all() == (photos == 1)


def test_equal_photos_of_two_products_have_finite_scores() -> None:
    x = np.full((6, 4), 0.5, np.float32)
    labels, rows = np.arange(2).repeat(3), np.arange(6)
    for table in left_out(x, labels, rows, RULES).values():
        assert np.isfinite(table.known).all()
        assert np.isfinite(table.other).all()
    of_photos = means(WHITENED, x, labels, rows).scores(x + np.float32(0.1))
    assert of_photos.tolist() == np.zeros((6, 2)).tolist()
    assert choose(left_out(x, labels, rows, RULES))[0].rule == NEAREST


def test_chooses_whitened_class_means_where_a_few_directions_hide_the_products() -> None:
    x, labels = clustered(40, 6)
    noise = np.random.default_rng(0).standard_normal((len(x), 4)) * 1.5
    hidden = np.hstack([x, noise]).astype(np.float32)
    hidden /= np.linalg.norm(hidden, axis=1, keepdims=True)
    choices = choose(left_out(hidden, labels, np.arange(len(labels)), RULES))
    assert choices[0].rule.startswith(WHITENED)
    assert choices[0].low > 0
    assert {choice.rule for choice in choices} == set(RULES)


def test_keeps_the_nearest_picture_where_no_rule_is_better_or_products_are_few() -> None:
    random = np.random.default_rng(0).standard_normal((200, 24)).astype(np.float32)
    random /= np.linalg.norm(random, axis=1, keepdims=True)
    for products in (40, 10):  # chance; fewer than the rule for better needs
        labels = np.arange(products).repeat(200 // products)
        assert choose(left_out(random, labels, np.arange(200), RULES))[0].rule == NEAREST
    x, labels = clustered(12, 6)
    control = choose(left_out(x, labels, np.arange(72), RULES))[0]
    assert (control.rule, control.difference, control.low) == (NEAREST, 0.0, None)
    alone = left_out(random, np.arange(200), np.arange(200), RULES)
    assert [choice.rule for choice in choose(alone)] == [NEAREST]
    with pytest.raises(ValueError, match="two products"):
        left_out(random, np.zeros(200, np.int64), np.arange(200))


def test_the_curve_counts_the_photos_at_each_threshold_and_survives_json() -> None:
    x, labels = clustered(30, 6)
    rows = drawn(labels, np.zeros(30, bool))
    table = left_out(x, labels, rows)[NEAREST]
    points = curve(table, 30)
    for point in points:
        answered = table.known >= point.score
        assert point.false == (table.other >= point.score).mean() <= point.false_limit
        assert point.right.value == (answered & table.right).mean()
        assert point.wrong.value == (answered & ~table.right).mean() <= point.wrong_limit
        assert point.right.low - 1e-9 <= point.right.value <= point.right.high + 1e-9
        assert point.right.value + point.wrong.value + point.unknown.value == pytest.approx(1)
    assert points[-1].false == 1
    for share, point in zip((0.01, 0.02, 0.05, 0.1, 0.2, 0.5), points[:-1], strict=True):
        below = table.other[table.other < point.score].max()
        assert (table.other >= point.score).sum() <= int(180 * share) < (table.other >= below).sum()
    assert points[-1].unknown.value == 0
    assert [of_plain(plain(point)) for point in points] == points
    assert len([*lines(points)]) == 1 + len(points)
    assert picture(points).count("<polyline") == 3
    assert curve(left_out(x, np.arange(180), rows)[NEAREST], 180) == []
