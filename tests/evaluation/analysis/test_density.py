"""Embedding density equals its definition pair by pair, and is NaN where it is undefined."""

import math

import numpy as np
import pytest

from tests.oracles import generalization as oracle
from tests.oracles import released_generalization as released
from unseen.evaluation.analysis.density import embedding_density


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def sample() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(3)
    labels = np.array([7] * 5 + [2] * 3 + [40] * 1 + [11] * 6)
    centres = {label: generator.normal(size=9) for label in set(labels.tolist())}
    return unit(np.stack([centres[label] + 0.6 * generator.normal(size=9) for label in labels])), labels


def test_definition(sample: tuple[np.ndarray, np.ndarray]) -> None:
    density = embedding_density(*sample)
    intra, inter, ratio = oracle.density(*sample)
    assert density.intra == pytest.approx(intra, rel=1e-12)
    assert density.inter == pytest.approx(inter, rel=1e-12)
    assert density.ratio == pytest.approx(ratio, rel=1e-12)
    assert (density.classes, density.single_image_classes) == (4, 1)


def test_released_code_where_every_class_has_two_images(sample: tuple[np.ndarray, np.ndarray]) -> None:
    embeddings, labels = sample[0][sample[1] != 40], sample[1][sample[1] != 40]
    density = embedding_density(embeddings, labels)
    assert density.intra == pytest.approx(released.intra(embeddings, labels), rel=1e-12)
    assert density.inter == pytest.approx(released.inter(embeddings, labels), rel=1e-12)
    assert density.ratio == pytest.approx(released.density(embeddings, labels), rel=1e-12)


def test_released_code_fills_classes_of_one_image_from_the_first_two_classes(
    sample: tuple[np.ndarray, np.ndarray],
) -> None:
    """The mask of the released code is an index. Its result depends on the order of the classes; that of this
    project does not."""
    embeddings, labels = sample
    widths = {
        label: embedding_density(embeddings[labels == label], labels[labels == label]).intra
        for label in (2, 7, 11)
    }
    first_two = max(widths[2], widths[7])  # 40 is the class of one image
    assert released.intra(embeddings, labels) == pytest.approx(
        np.mean([*widths.values(), first_two]), rel=1e-12
    )
    assert embedding_density(embeddings, labels).intra == pytest.approx(
        np.mean([*widths.values()]), rel=1e-12
    )
    reordered_labels = np.where(labels == 40, 0, labels)
    assert math.isnan(released.intra(embeddings, reordered_labels))
    assert embedding_density(embeddings, reordered_labels).intra == pytest.approx(
        embedding_density(embeddings, labels).intra, rel=1e-12
    )


def test_equals_a_calculation_by_hand() -> None:
    # class 0: one pair at distance 1; class 1: duplicates; centres at cos 135 degrees
    x = np.array([[1.0, 0], [0, 1], [-1, 0], [-1, 0]])
    density = embedding_density(x, np.array([0, 0, 1, 1]))
    assert density.intra == pytest.approx(0.5, abs=1e-15)
    assert density.inter == pytest.approx(1 + math.sqrt(0.5), abs=1e-15)


def test_does_not_depend_on_order_rotation_or_label_names(sample: tuple[np.ndarray, np.ndarray]) -> None:
    embeddings, labels = sample
    generator = np.random.default_rng(0)
    rotation = np.linalg.qr(generator.normal(size=(9, 9)))[0]
    order = generator.permutation(len(labels))
    assert embedding_density((embeddings @ rotation)[order], 1000 - labels[order]).ratio == pytest.approx(
        embedding_density(embeddings, labels).ratio, rel=1e-12
    )


def test_blocks_keep_the_result(
    sample: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = embedding_density(*sample)
    monkeypatch.setattr("unseen.evaluation.analysis.rows.BLOCK", 2)
    assert embedding_density(*sample).ratio == pytest.approx(expected.ratio, rel=1e-13)


def test_duplicates_have_zero_width_exactly() -> None:
    x = unit(np.random.default_rng(1).normal(size=(2, 64))).astype(np.float32)
    assert embedding_density(np.repeat(x, 4, axis=0), np.repeat([0, 1], 4)).intra < 1e-30


def test_float32_input_agrees_with_float64_definition(sample: tuple[np.ndarray, np.ndarray]) -> None:
    embeddings, labels = sample[0].astype(np.float32), sample[1]
    assert embedding_density(embeddings, labels).ratio == pytest.approx(
        oracle.density(embeddings, labels)[2], rel=1e-12
    )


def test_undefined_parts_are_nan() -> None:
    x = unit(np.random.default_rng(1).normal(size=(4, 3)))
    one_class = embedding_density(x, np.zeros(4, dtype=int))
    assert one_class.intra > 0
    assert math.isnan(one_class.inter)
    assert math.isnan(one_class.ratio)
    density = embedding_density(x, np.arange(4))
    assert math.isnan(density.intra)
    assert math.isnan(density.ratio)
    assert density.single_image_classes == 4


def test_one_dimension_and_a_class_that_cancels_out() -> None:
    density = embedding_density(np.array([[1.0], [1.0], [-1.0], [1.0], [-1.0]]), np.array([0, 0, 1, 2, 2]))
    assert density.intra == pytest.approx((0 + 2) / 2)
    assert density.inter == pytest.approx((2 + 1 + 1) / 3)  # class 2 has no centre: distance 1 to both others


@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf])
def test_refuses_a_row_without_direction(bad: float) -> None:
    x = np.eye(3)
    x[1] = bad
    with pytest.raises(ValueError, match="embedding 1 has no direction"):
        embedding_density(x, np.arange(3))


def test_refuses_an_empty_set() -> None:
    with pytest.raises(ValueError, match="embedding density of no embeddings"):
        embedding_density(np.empty((0, 3)), np.empty(0, np.int64))
