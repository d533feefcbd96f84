"""The toy problem of GSP figure 2: the problem of the paper, the linear program, its limit, and the file."""

from pathlib import Path

import numpy as np
import pytest

from tools.docs.toy_transport import (
    PROTOTYPES,
    RATIO,
    draw,
    exact_weights,
    of_prototypes,
    smoothed_weights,
    toy_features,
)


def test_half_of_the_positions_have_the_colours_of_the_prototypes_and_mu_is_smaller() -> None:
    features = toy_features()
    assert features.shape == (100, 3)
    assert features.min() >= 0
    assert features.max() <= 1
    red, blue, green = np.argmax(features, axis=1) == np.array([[0], [2], [1]])
    assert (red.sum(), blue.sum(), green.sum()) == (25, 25, 50)
    np.testing.assert_array_equal(of_prototypes(), np.stack([red, blue], axis=1))
    np.testing.assert_array_equal(PROTOTYPES, [[1, 0, 0], [0, 0, 1]])
    assert RATIO == 0.2


def test_the_linear_program_selects_the_features_nearest_to_a_prototype() -> None:
    features = toy_features()
    nearest = np.linalg.norm(PROTOTYPES[:, None] - features, axis=2).min(0)
    selected = np.argsort(nearest)[:20]
    expected = np.zeros(100)
    expected[selected] = 1 / 20
    np.testing.assert_allclose(exact_weights(features, RATIO), expected, atol=1e-9)


def test_smoothed_weights_approach_those_of_the_linear_program() -> None:
    features = toy_features()
    exact = exact_weights(features, RATIO)
    distances = [
        np.abs(smoothed_weights(features, RATIO, value) - exact).sum() for value in (1.0, 10.0, 100.0, 2000.0)
    ]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 0.1 < distances[0]
    assert smoothed_weights(features, RATIO, 5.0).sum() == pytest.approx(1)


def test_smoothing_keeps_the_positions_that_the_linear_program_discards() -> None:
    features, near = toy_features(), of_prototypes().any(axis=1)
    exact, smoothed = exact_weights(features, RATIO), smoothed_weights(features, RATIO, 5.0)
    assert (exact[near] == 0).sum() == 30
    assert smoothed[near].min() > 0.015  # an equal share is 0.02
    assert smoothed[~near].sum() < 0.01


def test_writes_an_svg_file_with_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        draw(tmp_path / name)
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert (tmp_path / "b.svg").read_text(encoding="utf-8") == text
    assert (tmp_path / "b.pdf").read_bytes() == (tmp_path / "a.pdf").read_bytes()
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    for title in ("prototypes", "linear program", "epsilon 5", "uses 20 of 50", "uses 50 of 50", "mu 0.2"):
        assert title in text
