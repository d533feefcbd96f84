"""Means over seeds, and which best method is clear."""

import math

import pytest

from pipeline.report.summary import best_method, summarize


def metrics(value: float, half: float) -> dict[str, float]:
    return {"map_at_r": value, "map_at_r_low": value - half, "map_at_r_high": value + half, "queries": 10}


@pytest.mark.parametrize(("half", "overlapping"), [(0.04, ()), (0.06, ("b",)), (0.2, ("b", "c"))])
def test_best_is_clear_only_without_overlap(half: float, overlapping: tuple[str, ...]) -> None:
    runs = [("c", metrics(0.2, half)), ("a", metrics(0.5, half)), ("b", metrics(0.4, half))]
    best = best_method(summarize(runs, ("a", "b", "c")), "map_at_r")
    assert best is not None
    assert (best.method, best.overlapping, best.clear) == ("a", overlapping, not overlapping)


def test_a_tie_or_a_missing_interval_is_never_clear() -> None:
    tie = best_method(summarize([("a", metrics(0.5, 0.0)), ("b", metrics(0.5, 0.0))], ("a", "b")), "map_at_r")
    assert tie is not None
    assert not tie.clear
    bare = best_method(
        summarize([("a", {"map_at_r": 0.9}), ("b", {"map_at_r": 0.1})], ("a", "b")), "map_at_r"
    )
    assert bare is not None
    assert not bare.clear
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
    bare = summarize(files, ("a",)).of("a", "map_at_r")
    assert bare is not None
    assert (bare.value, bare.deviation) == pytest.approx((0.3, math.sqrt(0.02)))
    assert (bare.low, bare.high) == (None, None)
    joint = summarize(files, ("a",), {"a": {"map_at_r": (0.25, 0.36)}})
    both = [joint.of("a", "map_at_r", network) for network in ("selected", "last")]
    assert [(value.low, value.high) for value in both if value is not None] == [(0.25, 0.36), (None, None)]


def test_the_headline_of_landmarks_is_the_first_medium_map() -> None:
    names = ("b_hard_map", "a_medium_map", "b_medium_map")
    assert summarize([("m", dict.fromkeys(names, 0.5))], ("m",)).headline == "a_medium_map"
    assert summarize([("m", {"map_at_r": 0.5, "a_medium_map": 0.5})], ("m",)).headline == "map_at_r"
