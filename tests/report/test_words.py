"""Numbers and names as the page writes them; what counts as clearly best."""

import math

import pytest

from pipeline.report.summary import Value, results, verdict
from pipeline.report.svg import inline, panel
from pipeline.report.words import counted, decimals, interval, listed, name_of, number, percent, probability, short, signed_points


def test_numbers_have_sensible_digits() -> None:
    assert [percent(x) for x in (0.51234, 1.0, None, math.nan)] == ["51.2", "100.0", "–", "–"]
    assert interval(Value(0.5, 0.41, 0.591)) == "41.0 – 59.1"
    assert interval(Value(0.5)) == ""
    assert [number(x) for x in (3, 12345, 0.123456, 2.0, 0.00012345, 1.2e-7, 98765.4, None)] == [
        "3", "12,345", "0.123", "2", "0.000123", "1.200e-07", "98,765", "–",
    ]  # fmt: skip
    assert [decimals(x) for x in (1.1, None)] == ["1.100", "–"]
    assert [probability(x) for x in (0.0004, 0.0123, 0.2345, 1.0)] == ["< 0.001", "0.012", "0.23", "1.00"]
    assert [signed_points(x) for x in (0.052, -0.031, None)] == ["+5.2", "−3.1", "–"]


def test_names() -> None:
    assert [name_of(x) for x in ("recall_at_10", "map_at_r", "precision_at_1", "zero_shot", "stage_3")] == [
        "Recall@10", "MAP@R", "Precision@1", "zero shot", "stage 3",
    ]  # fmt: skip
    assert [name_of(x) for x in ("map", "nmi", "class_mean_recall_at_1", "roxford5k_hard_map", "rparis6k_easy_mp_at_10", "roadmap")] == [
        "MAP", "NMI", "class mean Recall@1", "roxford5k hard MAP", "rparis6k easy mP@10", "roadmap",
    ]  # fmt: skip
    assert (counted(1, "class"), counted(1200, "class"), counted(2, "image")) == ("1 class", "1,200 classes", "2 images")
    assert (listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])) == ("a", "a and b", "a, b and c")
    assert short("sha256:" + "0123456789abcdef" * 4) == "0123456789ab"


def metrics(value: float, half: float) -> dict[str, float]:
    return {"map_at_r": value, "map_at_r_low": value - half, "map_at_r_high": value + half, "queries": 10}


@pytest.mark.parametrize(("half", "rivals"), [(0.04, ()), (0.06, ("b",)), (0.2, ("b", "c"))])
def test_best_is_clear_only_without_overlap(half: float, rivals: tuple[str, ...]) -> None:
    found = verdict(results([("c", metrics(0.2, half)), ("a", metrics(0.5, half)), ("b", metrics(0.4, half))], ("a", "b", "c")), "map_at_r")
    assert found is not None
    assert (found.best, found.rivals, found.clear) == ("a", rivals, not rivals)


def test_a_tie_or_a_missing_interval_is_never_clear() -> None:
    tie = verdict(results([("a", metrics(0.5, 0.0)), ("b", metrics(0.5, 0.0))], ("a", "b")), "map_at_r")
    assert tie is not None
    assert not tie.clear
    bare = verdict(results([("a", {"map_at_r": 0.9}), ("b", {"map_at_r": 0.1})], ("a", "b")), "map_at_r")
    assert bare is not None
    assert not bare.clear
    assert verdict(results([("a", {"map_at_r": 0.9})], ("a",)), "recall_at_1") is None


def test_a_chart_is_the_same_twice_and_takes_no_formula_or_markup_from_a_name() -> None:
    from pipeline.report.svg import plain

    def draw() -> str:
        with panel(plain("a $x^2$ <b>")) as (figure, axes):
            axes.plot([1, 2], [3, 4], marker="o")
            return inline(figure, "one", 'a "quoted" <name>')

    assert draw() == draw()
    assert "a $x^2$ &lt;b&gt;</text>" in draw()
    assert 'aria-label="a &quot;quoted&quot; &lt;name>"' in draw()
    assert "#0" not in draw().replace("#one", ""), "colours are variables of the page"
