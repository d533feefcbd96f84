"""Numbers and names in the form of the page."""

import math

from unseen.report.summary import Value
from unseen.report.words import (
    counted,
    decimals,
    interval,
    listed,
    name_of,
    number,
    percent,
    probability,
    short,
    signed_points,
)


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
    keys = ("map", "nmi", "class_mean_recall_at_1", "roxford5k_hard_map", "rparis6k_easy_mp_at_10", "roadmap")
    assert [name_of(x) for x in keys] == [
        "MAP", "NMI", "class mean Recall@1", "roxford5k hard MAP", "rparis6k easy mP@10", "roadmap",
    ]  # fmt: skip
    assert (counted(1, "class"), counted(1200, "class"), counted(2, "image")) == (
        "1 class",
        "1,200 classes",
        "2 images",
    )
    assert (listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])) == ("a", "a and b", "a, b and c")
    assert short("sha256:" + "0123456789abcdef" * 4) == "0123456789ab"
