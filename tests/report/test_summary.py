"""Means over seeds, and the best method."""

import math

import pytest

from unseen.report.summary import best_method, summarize


def metrics(value: float, half_width: float) -> dict[str, float]:
    interval = {"map_at_r_low": value - half_width, "map_at_r_high": value + half_width}
    return {"map_at_r": value, **interval, "queries": 10}


def test_the_best_method_has_the_highest_value_and_of_equal_values_is_the_first() -> None:
    runs = [(name, metrics(value, 0.1)) for name, value in (("c", 0.2), ("a", 0.5), ("b", 0.5))]
    best = best_method(summarize(runs, ("c", "a", "b")), "map_at_r")
    assert best is not None
    assert (best.method, best.metric, best.value.value) == ("a", "map_at_r", 0.5)
    assert best_method(summarize([("a", {"map_at_r": 0.9})], ("a",)), "recall_at_1") is None


def test_several_seeds_have_mean_deviation_and_the_joint_interval() -> None:
    files = [
        (
            "a",
            {
                "map_at_r": value,
                "map_at_r_low": value - 0.1,
                "map_at_r_high": value + 0.1,
                "last_map_at_r": value,
            },
        )
        for value in (0.2, 0.4)
    ]
    without_interval = summarize(files, ("a",)).of("a", "map_at_r")
    assert without_interval is not None
    assert (without_interval.value, without_interval.deviation) == pytest.approx((0.3, math.sqrt(0.02)))
    assert (without_interval.low, without_interval.high) == (None, None)
    joint = summarize(files, ("a",), {"a": {"map_at_r": (0.25, 0.36)}})
    estimates = [joint.of("a", "map_at_r", network) for network in ("selected", "last")]
    assert [(value.low, value.high) for value in estimates if value is not None] == [
        (0.25, 0.36),
        (None, None),
    ]


def test_the_main_metric_of_landmarks_is_the_first_medium_map() -> None:
    names = ("b_hard_map", "a_medium_map", "b_medium_map")
    assert summarize([("m", dict.fromkeys(names, 0.5))], ("m",)).headline == "a_medium_map"
    assert summarize([("m", {"map_at_r": 0.5, "a_medium_map": 0.5})], ("m",)).headline == "map_at_r"
