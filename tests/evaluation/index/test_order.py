"""The exact order: similarities to the last bit, ties, keys, and margins that bound the error."""

import numpy as np
import pytest

from tests.oracles import retrieval as oracle
from tests.vectors import unit
from unseen.evaluation.index import order
from unseen.runtime.errors import UserError


def galleries() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {
        "gaussian": unit(generator.standard_normal((90, 33))),
        "signs": unit(np.sign(generator.standard_normal((90, 37)))),
        "nearly one point": unit(
            generator.standard_normal((1, 20)) + 1e-7 * generator.standard_normal((90, 20))
        ),
        "not unit": (
            generator.standard_normal((90, 5)) * 10.0 ** generator.integers(-20, 18, (90, 1))
        ).astype(np.float32),
        "zeros": np.zeros((90, 4), np.float32),
    }


@pytest.mark.parametrize("name", galleries())
def test_similarities_equal_the_definition(name: str) -> None:
    rows = galleries()[name]
    expected = np.array(
        [[oracle.similarity(a, b) for b in rows.tolist()] for a in rows[:40].tolist()], np.float32
    )
    assert np.array_equal(order.block(rows[:40], rows), expected)
    places = np.indices((40, 90)).reshape(2, -1)
    assert np.array_equal(order.pairs_at(rows, places[0], rows, places[1]).reshape(40, 90), expected)


@pytest.mark.parametrize("name", galleries())
def test_doubtful_products_are_recomputed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A margin that makes every value doubtful gives the same similarities."""
    rows = galleries()[name]
    expected = order.block(rows, rows)
    monkeypatch.setattr(order, "gamma", lambda terms, roundoff: 1e-4)
    assert np.array_equal(order.block(rows, rows), expected)


def test_equal_rows_have_equal_similarities_at_any_position() -> None:
    generator = np.random.default_rng(1)
    for dim in (1, 7, 96, 384):
        row, query = generator.standard_normal((2, dim)).astype(np.float32)
        copies = np.repeat(row[None], 3001, axis=0)
        assert len(np.unique(order.pairs(np.repeat(query[None], 3001, axis=0), copies))) == 1
        assert len(np.unique(order.block(query[None], copies))) == 1


def test_keys_are_similarity_descending_then_id_ascending() -> None:
    generator = np.random.default_rng(2)
    special = np.array(
        [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, 1e-45, -1e-45, np.nextafter(np.float32(1), np.float32(2))],
        np.float32,
    )
    values = np.concatenate(
        [special, generator.choice(special, 200), generator.standard_normal(300).astype(np.float32)]
    )
    ids = (
        generator.permutation(10**9)[: len(values)]
        if len(values) > 10**6
        else generator.choice(10**9, len(values), replace=False)
    )
    places = order.places(ids)
    ranked = np.argsort(order.keys(values, places))[::-1]
    assert ranked.tolist() == sorted(range(len(values)), key=lambda row: (-values[row], ids[row]))
    assert len(np.unique(order.keys(values, places))) == len(values)


def test_keys_distinguish_the_largest_ids() -> None:
    values = np.zeros(3, np.float32)
    assert (np.diff(order.keys(values, np.array([0, order.LAST - 1, order.LAST]))) < 0).all()


@pytest.mark.parametrize("spread", [1.0, 1e-3, 1e-6, 0.0])
def test_float32_products_are_within_the_margin(spread: float) -> None:
    """The margin bounds the error, and shrinks with a collapsed gallery."""
    generator = np.random.default_rng(3)
    gallery = unit(generator.standard_normal((1, 64)) + spread * generator.standard_normal((500, 64)))
    queries = unit(generator.standard_normal((200, 64)))
    centred, wide = order.Centred(gallery), queries.astype(np.float64)
    approximate = (queries @ centred.rows.T).astype(np.float64) + centred.offset(wide)[:, None]
    error = np.abs(approximate - wide @ gallery.T.astype(np.float64)).max(axis=1)
    assert (error <= centred.error(wide)).all()
    assert centred.error(wide).max() < 2e-5 * max(2 * spread, 1e-7) * 8


@pytest.mark.parametrize("exponent", [-40, -60, -63, -70, -130])
def test_products_that_are_replaced_by_zero_are_within_the_margin(exponent: int) -> None:
    """All factors, products and sums below the normal range of float32 are replaced, as on some devices."""

    def flushed(values: np.ndarray) -> np.ndarray:
        return np.where(np.abs(values) < 2.0**-126, np.float32(0), values.astype(np.float32))

    generator = np.random.default_rng(3)
    scale = np.float32(2.0**exponent)
    gallery = unit(generator.standard_normal((300, 64))) * scale
    queries = unit(generator.standard_normal((40, 64))) * scale
    centred, wide = order.Centred(gallery), queries.astype(np.float64)
    total = np.zeros((40, 300), np.float32)
    for query, row in zip(flushed(queries).T, flushed(centred.rows).T, strict=True):
        total = flushed(total + flushed(query[:, None] * row))
    approximate = total.astype(np.float64) + centred.offset(wide)[:, None]
    error = np.abs(approximate - wide @ gallery.T.astype(np.float64)).max(axis=1)
    assert (error <= centred.error(wide)).all()


def test_positions_and_self() -> None:
    ids = np.array([40, 7, 100, 8])
    assert order.places(ids).tolist() == [2, 0, 3, 1]
    assert order.itself(np.array([100, 9, 7, 101]), ids).tolist() == [2, -1, 1, -1]
    with pytest.raises(UserError, match="Row id 7 occurs twice"):
        order.places(np.array([7, 3, 7]))
