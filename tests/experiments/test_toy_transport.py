"""The toy problem of GSP figure 2: the linear program, its limit, and the file."""

from pathlib import Path

import numpy as np
import pytest

from tools.docs.toy_transport import PROTOTYPES, draw, exact_weights, smoothed_weights, toy_features

RATIO = 0.25


def test_the_linear_program_selects_the_features_nearest_to_a_prototype() -> None:
    features = toy_features()
    nearest = np.linalg.norm(PROTOTYPES[:, None] - features, axis=2).min(0)
    selected = np.argsort(nearest)[:25]
    expected = np.zeros(100)
    expected[selected] = 1 / 25
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


def test_writes_an_svg_file_with_equal_bytes(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        draw(tmp_path / name)
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert (tmp_path / "b.svg").read_text(encoding="utf-8") == text
    for title in ("linear program", "epsilon 5", "epsilon 100", "differs by 0% of the weight"):
        assert title in text
