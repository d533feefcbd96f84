"""Zero-shot attribute transfer against its definition split by split, and what it says of attributes that
carry something or nothing."""

import dataclasses

import numpy as np
import pytest

from pipeline.analysis import transfer
from pipeline.analysis.average_precision import TIE, average_precision
from pipeline.analysis.transfer import attribute_transfer, chance_ap, fit_ridge
from tests.oracles import transfer as oracle

COUNTS = {5: 4, 9: 7, 2: 1, 30: 5, 11: 6}


def sample(
    noise: float = 0.5, seed: int = 0, names: tuple[int, ...] = tuple(COUNTS)
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Attributes that mix the parts of an image, embeddings that are a linear map of what the class holds;
    rows in mixed order."""
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.repeat(names, [COUNTS[name] for name in names]))
    truth = {name: generator.dirichlet(np.full(4, 0.6)) for name in names}
    to_embedding = generator.normal(size=(6, 4))
    z = np.stack([truth[label] + noise * generator.dirichlet(np.ones(4)) for label in labels])
    x = np.stack([to_embedding @ truth[label] + 0.2 * noise * generator.normal(size=6) for label in labels])
    z /= z.sum(1, keepdims=True)
    return z.astype(np.float32), (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), labels


@pytest.mark.parametrize("classes", [9, 5, 4])
def test_definition_over_the_same_splits(classes: int) -> None:
    z, x, labels = sample()
    found = attribute_transfer(z, x, labels, splits=6, ridge=0.05, classes=classes, seed=3)
    names, generator = sorted(COUNTS), np.random.default_rng(3)
    expected, chance = [], []
    for _ in range(6):
        drawn = [names[i] for i in generator.permutation(5)[:classes]]
        fit, held = drawn[: len(drawn) // 2], drawn[len(drawn) // 2 :]
        expected.append(oracle.transfer(z, x, labels.tolist(), fit, held, 0.05))
        images = sum(COUNTS[name] for name in held)
        chance.append(chance_ap(np.array([COUNTS[name] for name in held]), images).mean())
    assert (found.l2, found.cosine) == pytest.approx(tuple(np.mean(expected, axis=0)), rel=1e-10)
    assert (found.l2_std, found.cosine_std) == pytest.approx(tuple(np.std(expected, axis=0)), rel=1e-9)
    assert found.chance == pytest.approx(np.mean(chance), rel=1e-12)
    assert found.classes == min(classes, 5)


@pytest.mark.parametrize(("cells", "rows", "turn"), [(1, 3, 1), (60, 1000, 4), (1 << 21, 7, 8)])
def test_blocks_and_threads_change_no_score(
    cells: int, rows: int, turn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One query at a time, three images at a time, one split at a time; classes of more images than
    attributes enter by a triangular factor."""
    z, x, labels = sample()
    whole = attribute_transfer(z, x, labels, splits=9)
    for name, value in (("CELLS", cells), ("ROWS", rows), ("TURN", turn)):
        monkeypatch.setattr(transfer, name, value)
    monkeypatch.setattr(transfer.faiss, "omp_get_max_threads", lambda: 3)
    assert dataclasses.asdict(attribute_transfer(z, x, labels, splits=9)) == pytest.approx(
        dataclasses.asdict(whole), rel=1e-13
    )


def test_progress_of_long_work_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    z, x, labels = sample()
    attribute_transfer(z, x, labels, splits=9, title="transfer")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(transfer, "PROGRESS_FROM", 10)
    attribute_transfer(z, x, labels, splits=9, title="transfer")
    assert "transfer: 9/9 splits" in capsys.readouterr().err


def test_predictor_is_the_ridge_solution() -> None:
    generator = np.random.default_rng(1)
    z, counts, v = generator.random((9, 7)), np.array([3, 1, 5]), generator.normal(size=(3, 4))
    targets, sums = np.repeat(v, counts, axis=0), np.stack([part.sum(0) for part in np.split(z, [3, 4])])
    expected = oracle.predictor(z.tolist(), targets.tolist(), 0.05)
    for factor in (z, np.linalg.qr(z, mode="r")):
        np.testing.assert_allclose(v.T @ fit_ridge(factor, sums, 0.05).T, expected, rtol=1e-9, atol=1e-11)
    closed = (
        targets.T @ np.linalg.inv(z @ z.T + 0.05 * np.eye(9)) @ z
    )  # as the paper writes it, with the Gram matrix of the images
    np.testing.assert_allclose(expected, closed, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("seed", range(8))
def test_average_precision_with_ties(seed: int) -> None:
    """Few distinct scores; the images sought among the best (the rest is left out of the order), or
    anywhere."""
    generator = np.random.default_rng(seed)
    scores = generator.integers(0, 4, size=40).astype(float)
    start, stop = sorted(generator.choice(41, 2, replace=False).tolist())
    scores[start:stop] += 3 * (seed % 2)
    expected = oracle.average_precision(scores.tolist(), [start <= place < stop for place in range(40)])
    assert average_precision(scores + generator.uniform(-TIE / 9, TIE / 9, 40), start, stop) == pytest.approx(
        expected, rel=1e-14
    )


@pytest.mark.parametrize(("relevant", "images"), [(1, 1), (1, 6), (3, 7), (6, 6)])
def test_chance_is_the_mean_over_all_orders(relevant: int, images: int) -> None:
    assert chance_ap(np.array([relevant]), images)[0] == pytest.approx(
        oracle.chance(relevant, images), rel=1e-12
    )


def test_attributes_that_carry_the_class_transfer_and_shuffled_ones_do_not() -> None:
    z, x, labels = sample(noise=0.1)
    told = attribute_transfer(z, x, labels, splits=60)
    shuffled = attribute_transfer(np.random.default_rng(0).permutation(z), x, labels, splits=60)
    assert told.cosine > told.chance + 0.2
    assert told.l2 > told.chance + 0.15
    assert abs(shuffled.cosine - shuffled.chance) < 0.12


def test_attributes_all_alike_are_the_worst_order_not_the_best() -> None:
    _, x, labels = sample()
    found = attribute_transfer(np.full((len(labels), 4), 0.25, np.float32), x, labels, splits=5)
    assert max(found.l2, found.cosine) < found.chance


def test_order_rotation_and_names_play_no_part() -> None:
    z, x, labels = sample()
    whole = attribute_transfer(z, x, labels, splits=5)
    generator = np.random.default_rng(1)
    order = generator.permutation(len(labels))
    turned = x.astype(np.float64) @ np.linalg.qr(generator.normal(size=(6, 6)))[0]
    again = attribute_transfer(z[order], turned[order], 100 + 2 * labels[order], splits=5)
    assert (again.l2, again.cosine) == pytest.approx((whole.l2, whole.cosine), rel=1e-9)
    assert attribute_transfer(z, x, labels, splits=5, seed=1).l2 != whole.l2


def test_refusals() -> None:
    z, x, labels = sample()
    with pytest.raises(ValueError, match=r"needs four classes, two for each half; got 3"):
        attribute_transfer(z, x, np.minimum(labels, 9))
    with pytest.raises(ValueError, match="ridge must be positive"):
        attribute_transfer(z, x, labels, ridge=0.0)
    z[4, 1] = np.nan
    with pytest.raises(ValueError, match="image 4 are not finite"):
        attribute_transfer(z, x, labels)
