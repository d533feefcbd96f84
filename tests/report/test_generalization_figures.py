"""Figures of the generalisation analysis: drawn from what the analysis writes, with every series and name on them, the same bytes each time."""

import re
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from pipeline.analysis.spectrum import decay_modes
from pipeline.report import generalization as figures

POSITIONS = {"gsp": 0, "irt_r": 1}
RUNS = {name: [decay_modes(np.geomspace(1, 0.01 * (place + 1), 12))] for name, place in POSITIONS.items()}


def histogram(peak: int) -> dict[str, object]:
    share = np.exp(-((np.arange(20) - peak) ** 2) / 8)
    return {"share": (share / share.sum()).tolist(), "mean": peak / 10 - 0.95}


CURVES = {
    "edges": np.linspace(-1, 1, 21).tolist(),
    "positive": histogram(15), "negative": histogram(9), "train_positive": histogram(18), "train_negative": histogram(10),
}  # fmt: skip
SHARES = {"labels": [4, 5], "share": np.random.default_rng(0).dirichlet(np.ones(20), 2).tolist()}
TRANSFER = {
    "transfer_map_cosine": 0.41,
    "transfer_map_cosine_std": 0.05,
    "transfer_map_l2": 0.37,
    "transfer_map_l2_std": 0.04,
    "transfer_map_chance": 0.1,
}
MEANS = {
    ("gsp", "selected"): TRANSFER, ("gsp", "untrained"): TRANSFER | {"transfer_map_cosine": 0.12, "transfer_map_l2": None},
    ("irt_r", "selected"): dict.fromkeys(TRANSFER), ("irt_r", "untrained"): {},
}  # fmt: skip
HISTORY = [{"iteration": i, "gradient_covariance": 1 / i} for i in (10, 20, 30)]
DRAWN = {
    "modes": partial(figures.modes, RUNS, POSITIONS),
    "seen": partial(figures.seen_and_unseen, "gsp", 0, CURVES, (-0.5, 1.0)),
    "attributes": partial(figures.attributes, "gsp", 0, SHARES, [("<a>", "birds/<a>"), ("cost $5$", "cost $5$")]),
    "transfer": partial(figures.transfer, MEANS, POSITIONS),
    "noise": partial(figures.gradient_noise, {"irt_r": [HISTORY]}, POSITIONS, "Noise", "gradient_covariance"),
}


def label(svg: str) -> str:
    found = re.search(r'aria-label="([^"]+)"', svg)
    assert found is not None
    return found.group(1)


@pytest.mark.parametrize("draw", DRAWN.values(), ids=DRAWN)
def test_same_figure_same_bytes_and_the_colours_of_the_page(draw: Callable[..., str]) -> None:
    svg = draw(name="here")
    assert svg == draw(name="here")
    assert svg.startswith('<svg class="chart"')
    assert not set(re.findall(r"#[0-9a-f]{6}", svg)), "a colour that is not a variable of the page"
    assert all(found.startswith("here-") for found in re.findall(r' id="([^"]+)"', svg))


def test_modes_say_the_published_number_and_stop_where_values_end() -> None:
    assert "gsp" in label(DRAWN["modes"](name="x"))
    assert f"{RUNS['gsp'][0]['spectral_decay']:.3f}" in label(DRAWN["modes"](name="x"))
    short = {"gsp": [decay_modes(np.array([3.0, 2, 1])) | {f"spectral_decay_at_{m}": None for m in range(4, 11)}
                     | {f"spectral_decay_reversed_at_{m}": None for m in range(4, 11)}]}  # fmt: skip
    assert "<svg" in figures.modes(short, POSITIONS, "x")


def test_seen_and_unseen_means_are_said() -> None:
    said = label(DRAWN["seen"](name="x"))
    assert "positive pairs 0.850 on seen and 0.550 on unseen classes" in said
    assert "negative pairs 0.050 on seen and -0.050 on unseen classes" in said


def test_attributes_name_classes_and_the_leading_prototypes() -> None:
    svg = DRAWN["attributes"](name="x")
    assert "&lt;a&gt;<title>birds/&lt;a&gt;</title></text>" in svg, "the whole name of a shortened one"
    assert "cost $5$</text>" in svg
    leading = int(np.argmax(np.mean(SHARES["share"], axis=0)))
    assert f">{leading}</text>" in svg
    assert svg.count("opacity") == 2 * figures.PROTOTYPES - 1, "one for each share but the largest"


def test_transfer_leaves_out_methods_without_attributes() -> None:
    svg = DRAWN["transfer"](name="x")
    assert "gsp, cosine 41.0, before training 12.0, chance 10.0; gsp, distance 37.0, before training –, chance 10.0" in label(svg)
    assert "irt_r" not in svg


def test_noise_of_zero_has_no_logarithm() -> None:
    flat = [{"iteration": i, "gradient_covariance": 0.0} for i in (10, 20)]
    assert "<svg" in figures.gradient_noise({"irt_r": [flat]}, POSITIONS, "Noise", "gradient_covariance", "x")
