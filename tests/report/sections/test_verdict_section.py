"""The first sentence: which method is ahead of which on the same queries, in words that hold for one, two and many methods."""

from dataclasses import replace

import pytest

from pipeline.report.comparison import Lead
from pipeline.report.dataset import DataSet
from pipeline.report.sections.verdict import sentence
from pipeline.report.summary import Summary, Value, best_method
from tests.report.page_reader import Element


def made_up(values: dict[str, float], half: float = 0.1) -> Summary:
    each = {
        m: {"selected": {"map_at_r": Value(v, v - half, v + half)}, "untrained": {"map_at_r": Value(0.125)}}
        for m, v in values.items()
    }
    return Summary(tuple(values), ("map_at_r",), each, 1)


def text_of(birds: DataSet, values: dict[str, float], lead: Lead | None) -> str:
    summary = made_up(values)
    text = str(sentence(birds, summary, best_method(summary, "map_at_r"), lead))
    for tag in ("<b>", "</b>", '<span class="whole">', "</span>"):
        text = text.replace(tag, "")
    return text.removeprefix("On birds, 35 test images of 7 classes that no training has seen: ")


BEFORE = " Before training, with random weights, the same network reached 12.5."


@pytest.mark.parametrize(
    ("values", "lead", "expected"),
    [
        ({"good": 0.5}, None, "good reaches MAP@R 50.0 (40.0 – 60.0)."),
        (
            {"good": 0.5, "b": 0.45},
            Lead(["b"], [], (0.05, 0.02, 0.08)),
            "good is ahead of b, by 5.0 points (+2.0 to +8.0) on the same queries. Its MAP@R is 50.0 (40.0 – 60.0), against 45.0.",
        ),
        (
            {"b": 0.45, "good": 0.5},
            Lead([], ["b"], (0.05, -0.02, 0.12)),
            "whether good is ahead of b stays open. Its MAP@R is 50.0 (40.0 – 60.0), against 45.0; on the same queries it leads by 5.0 points "
            "(−2.0 to +12.0).",
        ),
        (
            {"good": 0.5, "b": 0.45, "c": 0.4},
            Lead(["b", "c"], []),
            "good is ahead of each of the 2 other methods on the same queries. Its MAP@R is 50.0 (40.0 – 60.0).",
        ),
        (
            {"good": 0.5, "b": 0.45, "c": 0.4, "d": 0.1},
            Lead(["c", "d"], ["b"]),
            "good is ahead of c and d on the same queries; whether it is ahead of b stays open. Its MAP@R is the highest, 50.0 (40.0 – 60.0).",
        ),
        (
            {"good": 0.5, "b": 0.45, "c": 0.4},
            Lead([], ["b", "c"]),
            "no lead is certain. The MAP@R of good is the highest, 50.0 (40.0 – 60.0), but whether it is ahead of b and c on the same queries "
            "stays open.",
        ),
        (
            {"good": 0.5, "b": 0.45},
            None,
            "good has the highest MAP@R, 50.0 (40.0 – 60.0), but its interval overlaps with that of b.",
        ),
        ({"good": 0.5, "b": 0.15}, None, "good has the highest MAP@R, 50.0 (40.0 – 60.0), an interval clear of every other method's."),
    ],
)  # fmt: skip
def test_the_best_method_and_its_significant_differences(
    birds: DataSet, values: dict[str, float], lead: Lead | None, expected: str
) -> None:
    assert text_of(birds, values, lead) == expected + BEFORE


@pytest.mark.parametrize(
    ("pretrained", "checkpoint", "words"),
    [
        (False, None, "training, with random"),
        (True, None, "fine-tuning, with its pretrained"),
        (False, "mine.safetensors", "fine-tuning, with its pretrained"),
    ],
)
def test_a_pretrained_network_is_not_called_untrained(
    birds: DataSet, pretrained: bool, checkpoint: str | None, words: str
) -> None:
    def change(recipe: dict) -> dict:
        backbone = recipe["recipe"]["backbone"] | {"pretrained": pretrained, "checkpoint": checkpoint}
        return recipe | {"recipe": recipe["recipe"] | {"backbone": backbone}}

    runs = [replace(run, recipe=change(run.recipe)) for run in birds.inputs.runs]
    changed = replace(birds, inputs=replace(birds.inputs, runs=runs))
    text = text_of(changed, {"good": 0.5}, None)
    assert f"Before {words} weights, the same network reached 12.5." in text
    assert "untrained" not in text.lower()


def test_the_page_starts_with_it(page: Element) -> None:
    text = page.first("p", **{"class": "lede"}).text()
    assert "no lead is certain. The MAP@R of good is the highest," in text, "seven classes are too few"
    assert "whether it is ahead of fair and poor on the same queries stays open" in text


def test_several_seeds_are_named(two_seeds_page: Element) -> None:
    assert "the mean of 2 seeds" in two_seeds_page.first("p", **{"class": "lede"}).text()
