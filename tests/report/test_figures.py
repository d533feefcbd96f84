"""Figures contain every series and name, use the colours of the page, and have equal bytes each time."""

import re
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from unseen.evaluation.analysis.spectrum import decay_modes
from unseen.report.dataset import styles_of
from unseen.report.sections.attributes import PROTOTYPES, attributes, transfer
from unseen.report.sections.geometry import drift, gaps
from unseen.report.sections.gradient_noise import gradient_noise
from unseen.report.sections.results import forest
from unseen.report.sections.similarity import seen_and_unseen
from unseen.report.sections.spectrum import modes
from unseen.report.sections.sweeps import chart
from unseen.report.sections.training import validation
from unseen.report.summary import Summary, Value
from unseen.report.svg import inline, panel, plain, style_of

POSITIONS = {"gsp": 0, "irt_r": 1}
RUNS = {name: [decay_modes(np.geomspace(1, 0.01 * (place + 1), 12))] for name, place in POSITIONS.items()}


def histogram(peak: int) -> dict[str, object]:
    share = np.exp(-((np.arange(20) - peak) ** 2) / 8)
    return {"share": (share / share.sum()).tolist(), "mean": peak / 10 - 0.95}


CURVES = {
    "edges": np.linspace(-1, 1, 21).tolist(),
    "positive": histogram(15), "negative": histogram(9),
    "train_positive": histogram(18), "train_negative": histogram(10),
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
    ("gsp", "selected"): TRANSFER,
    ("gsp", "untrained"): TRANSFER | {"transfer_map_cosine": 0.12, "transfer_map_l2": None},
    ("irt_r", "selected"): dict.fromkeys(TRANSFER), ("irt_r", "untrained"): {},
}  # fmt: skip
HISTORY = [{"iteration": i, "gradient_covariance": 1 / i} for i in (10.0, 20.0, 30.0)]
FIGURES = {
    "modes": partial(modes, RUNS, POSITIONS),
    "seen": partial(seen_and_unseen, "gsp", 0, CURVES, (-0.5, 1.0)),
    "attributes": partial(attributes, "gsp", 0, SHARES, [("<a>", "birds/<a>"), ("cost $5$", "cost $5$")]),
    "transfer": partial(transfer, MEANS, POSITIONS),
    "noise": partial(gradient_noise, {"irt_r": [HISTORY]}, POSITIONS, "Noise", "gradient_covariance"),
}


def test_styles_differ_for_fifty_rows() -> None:
    """In colour and dashes, and in colour and marker; the legend of a table has the dashes of the charts."""
    styles = [style_of(position) for position in range(50)]
    assert len({(colour, dashes) for colour, dashes, _ in styles}) == 50
    assert len({(colour, marker) for colour, _, marker in styles}) == 50
    legend = [(method.series, method.dashes) for method in styles_of([f"m{i}" for i in range(50)], "x")]
    assert len(set(legend)) == 50
    assert all(
        (dashes == "-") == (drawn == "") for (_, dashes, _), (_, drawn) in zip(styles, legend, strict=True)
    )


def label(svg: str) -> str:
    match = re.search(r'aria-label="([^"]+)"', svg)
    assert match is not None
    return match.group(1)


@pytest.mark.slow
@pytest.mark.parametrize("draw", FIGURES.values(), ids=FIGURES)
def test_same_figure_same_bytes_and_the_colours_of_the_page(draw: Callable[..., str]) -> None:
    svg = draw(name="here")
    assert svg == draw(name="here")
    assert svg.startswith('<svg class="chart"')
    assert not set(re.findall(r"#[0-9a-f]{6}", svg)), "a colour that is not a variable of the page"
    assert all(identifier.startswith("here-") for identifier in re.findall(r' id="([^"]+)"', svg))


def places(svg: str, style: str) -> list[tuple[float, float]]:
    """The places of the marks of a style, from left to right."""
    marks = re.findall(r'<use [^>]*x="([\d.]+)" y="([\d.]+)" style="([^"]*)"', svg)
    return sorted((float(x), float(y)) for x, y, drawn in marks if drawn.startswith(style))


def test_the_filled_mark_is_that_of_test_classes() -> None:
    means = {"gsp": {"train_map_at_r": 0.8, "test_map_at_r": 0.3}}
    svg = gaps(means, {"gsp": 0}, "map_at_r", "x")
    ((train, _),), ((test, _),) = places(svg, "fill: var(--paper)"), places(svg, "fill: var(--series-0)")
    assert train > test, "80 percent are farther right than 30"
    path = r'<path d="M ([\d.]+) [\d.]+\nL ([\d.]+) [\d.]+\n" style="[^"]*series-0\); stroke-width: 2;'
    (line,) = re.findall(path, svg)
    assert sorted(map(float, line)) == pytest.approx([test, train], abs=1e-4), "the marks end the line"


def test_the_cross_of_a_drift_is_before_training() -> None:
    rows = (("untrained", 0.2, 0.9), ("selected", 0.6, 0.4))
    means = {
        ("gsp", network): {"spectral_decay": decay, "embedding_density": density}
        for network, decay, density in rows
    }
    (cross, after) = places(drift(means, {"gsp": 0}, "x"), "fill: var(--series-0)")
    svg = drift(means | {("irt_r", "selected"): means["gsp", "selected"]}, POSITIONS, "x")
    assert re.search(rf'x="{cross[0]}\d*" [^>]*stroke-width: 1.5', svg), "the decay before training is lower"
    assert after[1] > cross[1], "y grows downwards: the density falls"


def test_similarities_within_a_class_are_coloured_and_seen_classes_dashed() -> None:
    svg = FIGURES["seen"](name="x").replace("\n", " ")
    peaks = {}  # of the outlines, by colour and dashes: the place of the smallest y
    for points, style in re.findall(r'<path d="([^"]+)" clip-path[^>]*style="([^"]*)"', svg):
        colour = re.search(r"fill: none;.* stroke: var\(--(series-0|ink)\)", style)
        if colour is not None:
            corners = [tuple(map(float, pair)) for pair in re.findall(r"([\d.]+) ([\d.]+)", points)]
            peaks[colour[1], "dasharray" in style] = min(corners, key=lambda corner: corner[1])[0]
    order = [("ink", False), ("ink", True), ("series-0", False), ("series-0", True)]
    assert sorted(peaks, key=peaks.__getitem__) == order  # means -0.05, 0.05, 0.55, 0.85


@pytest.mark.slow
def test_a_chart_escapes_formulas_and_markup_of_names() -> None:
    def draw() -> str:
        with panel(plain("a $x^2$ <b>")) as (figure, axes):
            axes.plot([1, 2], [3, 4], marker="o")
            return inline(figure, "one", 'a "quoted" <name>')

    assert draw() == draw()
    assert "a $x^2$ &lt;b&gt;</text>" in draw()
    assert 'aria-label="a &quot;quoted&quot; &lt;name>"' in draw()
    assert "#0" not in draw().replace("#one", ""), "colours are variables of the page"


@pytest.mark.slow
def test_modes_name_the_decay_and_end_with_the_values() -> None:
    assert "gsp" in label(FIGURES["modes"](name="x"))
    assert f"{RUNS['gsp'][0]['spectral_decay']:.3f}" in label(FIGURES["modes"](name="x"))
    undefined = {f"spectral_decay{end}_at_{m}": None for end in ("", "_reversed") for m in range(4, 11)}
    three_values = {"gsp": [decay_modes(np.array([3.0, 2, 1])) | undefined]}
    assert "<svg" in modes(three_values, POSITIONS, "x")


def test_the_means_of_similarities_are_in_the_description() -> None:
    text = label(FIGURES["seen"](name="x"))
    assert "positive pairs 0.850 on seen and 0.550 on unseen classes" in text
    assert "negative pairs 0.050 on seen and -0.050 on unseen classes" in text


def test_attributes_name_classes_and_the_leading_prototypes() -> None:
    svg = FIGURES["attributes"](name="x")
    assert "&lt;a&gt;<title>birds/&lt;a&gt;</title></text>" in svg, "the complete name of a shortened one"
    assert "cost $5$</text>" in svg
    leading = int(np.argmax(np.mean(SHARES["share"], axis=0)))
    assert f">{leading + 1}</text>" in svg, "counted from 1, as in the maps of prototypes"
    assert svg.count("opacity") == 2 * PROTOTYPES - 1, "one for each share but the largest"


def test_transfer_excludes_methods_without_attributes() -> None:
    svg = FIGURES["transfer"](name="x")
    cosine = "gsp, cosine 41.0, before training 12.0, chance 10.0"
    assert f"{cosine}; gsp, distance 37.0, before training –, chance 10.0" in label(svg)
    assert "irt_r" not in svg


def test_noise_of_zero_has_no_logarithm() -> None:
    flat = [{"iteration": i, "gradient_covariance": 0.0} for i in (10.0, 20.0)]
    assert "<svg" in gradient_noise({"irt_r": [flat]}, POSITIONS, "Noise", "gradient_covariance", "x")


def ticks(svg: str) -> list[float]:
    return [float(text) for text in re.findall(r">(-?\d+(?:\.\d+)?)</text>", svg.replace("−", "-"))]


def test_a_curve_of_test_classes_is_named_so() -> None:
    rows = [{"iteration": float(step), "recall_at_1": 0.5, "test_recall_at_1": 0.4} for step in (1, 2)]
    for metric, classes in (("recall_at_1", "held-out train"), ("test_recall_at_1", "test")):
        assert f"Recall@1 on {classes} classes over the iterations" in validation(
            {"a": [rows]}, {"a": 0}, metric, "x"
        )


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_axes_of_percentages_are_within_0_to_100(share: float) -> None:
    """If all values are at one end, the default limits of matplotlib exceed it."""
    rows = [{"iteration": float(step), "recall_at_1": share} for step in (1000, 2000, 3000)]
    curves = [tick for tick in ticks(validation({"a": [rows]}, {"a": 0}, "recall_at_1", "x")) if tick < 1000]
    values = {"a": {"selected": {"recall_at_1": Value(share, share, share)}}}
    intervals = ticks(forest(Summary(("a",), ("recall_at_1",), values, 1), "recall_at_1", "x"))
    trials = [
        {"trial": place, "dim": f"of {place}", "best_map_at_r": share, "stopped_early": "False"}
        for place in range(3)
    ]
    best = {"trials": [1], "values": {"dim": "of 1"}, "metric": "map_at_r"}
    swept = ticks(chart(trials, "dim", "best_map_at_r", best, "x"))
    for axis in (curves, intervals, swept):
        assert len(axis) > 1
        assert 0 <= min(axis) <= max(axis) <= 100


def test_values_of_a_sweep_over_a_wide_range_have_a_logarithmic_axis() -> None:
    for values, is_logarithmic in (((1, 10, 100), True), ((1, 5, 9), False), ((0, 10, 100), False)):
        trials = [{"trial": value, "k": value, "best": 0.5, "stopped_early": "False"} for value in values]
        svg = chart(trials, "k", "best", {"trials": [], "values": {"k": 0}, "metric": "map_at_r"}, "x")
        (first, _), (second, _), (third, _) = places(svg, "fill: var(--series-0)")
        share = (second - first) / (third - first)
        expected = 0.5 if is_logarithmic else (values[1] - values[0]) / (values[2] - values[0])
        assert share == pytest.approx(expected, abs=1e-3)


def test_points_of_a_sweep_are_means_over_seeds_at_equal_lengths() -> None:
    """Two seeds of two values have two points and two intervals; a stopped trial has a hollow point and no
    place on the line."""
    trials = [
        {"trial": 2 * place + seed, "seed": seed, "k": k, "best": score + seed / 10, "stopped_early": "False"}
        for place, (k, score) in enumerate(((1, 0.2), (3, 0.5)))
        for seed in (0, 1)
    ]
    best = {"trials": [2, 3], "values": {"k": 3}, "metric": "map_at_r"}
    short = {**trials[0], "trial": 4, "k": 2, "stopped_early": "True"}
    for rows, points in ((trials, 3), ([*trials, short], 4)):  # the circle of the best values is one of them
        figure = chart(rows, "k", "best", best, "x")
        assert figure.count("<use ") == points
        assert figure.count("fill: none; stroke: var(--series-0); stroke-width: 1.4") == 2  # intervals
        (line,) = re.findall(r'd="([^"]*)"[^>]*stroke: var\(--grid\); stroke-width: 1.4', figure)
        assert line.count("L") == 1
