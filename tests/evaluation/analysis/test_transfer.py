"""Zero-shot attribute transfer equals its definition split by split, and is high only for attributes that
depend on the class."""

import dataclasses

import numpy as np
import pytest

from tests.oracles import transfer as oracle
from unseen.evaluation.analysis import transfer
from unseen.evaluation.analysis.transfer import (
    TIE,
    attribute_transfer,
    average_precision,
    chance_ap,
    fit_ridge,
)

COUNTS = {5: 4, 9: 7, 2: 1, 30: 5, 11: 6}


def sample(
    noise: float = 0.5, seed: int = 0, names: tuple[int, ...] = tuple(COUNTS)
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Attributes that mix the parts of an image, and embeddings that are a linear map of the attributes of
    the class. Rows are in mixed order."""
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
    scores = attribute_transfer(z, x, labels, splits=6, ridge=0.05, classes=classes, seed=3)
    names, generator = sorted(COUNTS), np.random.default_rng(3)
    expected, chance = [], []
    for _ in range(6):
        sampled = [names[i] for i in generator.permutation(5)[:classes]]
        fit, held_out = sampled[: len(sampled) // 2], sampled[len(sampled) // 2 :]
        expected.append(oracle.transfer(z, x, labels.tolist(), fit, held_out, 0.05))
        images = sum(COUNTS[name] for name in held_out)
        chance.append(chance_ap(np.array([COUNTS[name] for name in held_out]), images).mean())
    assert (scores.l2, scores.cosine) == pytest.approx(tuple(np.mean(expected, axis=0)), rel=1e-10)
    assert (scores.l2_std, scores.cosine_std) == pytest.approx(tuple(np.std(expected, axis=0)), rel=1e-9)
    assert scores.chance == pytest.approx(np.mean(chance), rel=1e-12)
    assert scores.classes == min(classes, 5)


@pytest.mark.parametrize(("cells", "rows", "turn"), [(1, 3, 1), (60, 1000, 4), (1 << 21, 7, 8)])
def test_blocks_and_threads_change_no_score(
    cells: int, rows: int, turn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of one query, three images and one split. Classes with more images than attributes are reduced
    by a triangular factor."""
    z, x, labels = sample()
    expected = attribute_transfer(z, x, labels, splits=9)
    for name, value in (("CELLS", cells), ("ROWS", rows), ("TURN", turn)):
        monkeypatch.setattr(transfer, name, value)
    monkeypatch.setattr(transfer.faiss, "omp_get_max_threads", lambda: 3)
    assert dataclasses.asdict(attribute_transfer(z, x, labels, splits=9)) == pytest.approx(
        dataclasses.asdict(expected), rel=1e-13
    )


def test_only_long_work_prints_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    z, x, labels = sample()
    attribute_transfer(z, x, labels, splits=9, title="transfer")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(transfer, "PROGRESS_FROM", 10)
    attribute_transfer(z, x, labels, splits=9, title="transfer")
    assert "transfer: 9/9 splits" in capsys.readouterr().err


def test_predictor_equals_the_ridge_solution() -> None:
    generator = np.random.default_rng(1)
    z, counts, v = generator.random((9, 7)), np.array([3, 1, 5]), generator.normal(size=(3, 4))
    targets, sums = np.repeat(v, counts, axis=0), np.stack([part.sum(0) for part in np.split(z, [3, 4])])
    expected = oracle.predictor(z.tolist(), targets.tolist(), 0.05)
    for factor in (z, np.linalg.qr(z, mode="r")):
        np.testing.assert_allclose(v.T @ fit_ridge(factor, sums, 0.05).T, expected, rtol=1e-9, atol=1e-11)
    # The form of the paper, with the Gram matrix of the images.
    closed = targets.T @ np.linalg.inv(z @ z.T + 0.05 * np.eye(9)) @ z
    np.testing.assert_allclose(expected, closed, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("seed", range(8))
def test_average_precision_with_ties(seed: int) -> None:
    """Few distinct scores. The relevant images are among the best or anywhere."""
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


def test_attributes_of_the_class_transfer_and_shuffled_ones_do_not() -> None:
    z, x, labels = sample(noise=0.1)
    aligned = attribute_transfer(z, x, labels, splits=60)
    shuffled = attribute_transfer(np.random.default_rng(0).permutation(z), x, labels, splits=60)
    assert aligned.cosine > aligned.chance + 0.2
    assert aligned.l2 > aligned.chance + 0.15
    assert abs(shuffled.cosine - shuffled.chance) < 0.12


def test_equal_attributes_score_below_chance() -> None:
    _, x, labels = sample()
    scores = attribute_transfer(np.full((len(labels), 4), 0.25, np.float32), x, labels, splits=5)
    assert max(scores.l2, scores.cosine) < scores.chance


def test_does_not_depend_on_order_rotation_or_label_names() -> None:
    z, x, labels = sample()
    expected = attribute_transfer(z, x, labels, splits=5)
    generator = np.random.default_rng(1)
    order = generator.permutation(len(labels))
    turned = x.astype(np.float64) @ np.linalg.qr(generator.normal(size=(6, 6)))[0]
    transformed = attribute_transfer(z[order], turned[order], 100 + 2 * labels[order], splits=5)
    assert (transformed.l2, transformed.cosine) == pytest.approx((expected.l2, expected.cosine), rel=1e-9)
    assert attribute_transfer(z, x, labels, splits=5, seed=1).l2 != expected.l2
    assert attribute_transfer(z, x, labels, splits=5, seed=0) == expected


def test_refuses_invalid_arguments() -> None:
    z, x, labels = sample()
    with pytest.raises(ValueError, match=r"needs four classes, two for each half; got 3"):
        attribute_transfer(z, x, np.minimum(labels, 9))
    with pytest.raises(ValueError, match="ridge must be positive"):
        attribute_transfer(z, x, labels, ridge=0.0)
    z[4, 1] = np.nan
    with pytest.raises(ValueError, match="image 4 are not finite"):
        attribute_transfer(z, x, labels)
