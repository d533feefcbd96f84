"""The first sentence: which method is ahead of which on the same queries, in words that hold for one, two and many methods."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.report.inputs import Inputs, read_inputs
from pipeline.report.opening import Leader, lede, tiles
from pipeline.report.summary import Results, Value, verdict


@pytest.fixture(scope="module")
def inputs(project: Path) -> Inputs:
    return read_inputs(project, ("birds",), ("good", "poor", "fair"), (0,))


def made_up(values: dict[str, float], half: float = 0.1) -> Results:
    each = {m: {"selected": {"map_at_r": Value(v, v - half, v + half)}, "untrained": {"map_at_r": Value(0.125)}} for m, v in values.items()}
    return Results(tuple(values), ("map_at_r",), each, 1)


def said(inputs: Inputs, values: dict[str, float], paired: Leader | None) -> str:
    found = made_up(values)
    text = str(lede(inputs, "birds", found, verdict(found, "map_at_r"), paired))
    for tag in ("<b>", "</b>", '<span class="whole">', "</span>"):
        text = text.replace(tag, "")
    return text.removeprefix("On birds, 35 test images of 7 classes that no training has seen: ")


BEFORE = " Before training, with random weights, the same network reached 12.5."


@pytest.mark.parametrize(
    ("values", "paired", "sentence"),
    [
        ({"good": 0.5}, None, "good reaches MAP@R 50.0 (40.0 – 60.0)."),
        (
            {"good": 0.5, "b": 0.45},
            Leader(["b"], [], (0.05, 0.02, 0.08)),
            "good is ahead of b, by 5.0 points (+2.0 to +8.0) on the same queries. Its MAP@R is 50.0 (40.0 – 60.0), against 45.0.",
        ),
        (
            {"b": 0.45, "good": 0.5},
            Leader([], ["b"], (0.05, -0.02, 0.12)),
            "whether good is ahead of b stays open. Its MAP@R is 50.0 (40.0 – 60.0), against 45.0; on the same queries it leads by 5.0 points "
            "(−2.0 to +12.0).",
        ),
        (
            {"good": 0.5, "b": 0.45, "c": 0.4},
            Leader(["b", "c"], []),
            "good is ahead of each of the 2 other methods on the same queries. Its MAP@R is 50.0 (40.0 – 60.0).",
        ),
        (
            {"good": 0.5, "b": 0.45, "c": 0.4, "d": 0.1},
            Leader(["c", "d"], ["b"]),
            "good is ahead of c and d on the same queries; whether it is ahead of b stays open. Its MAP@R is the highest, 50.0 (40.0 – 60.0).",
        ),
        (
            {"good": 0.5, "b": 0.45, "c": 0.4},
            Leader([], ["b", "c"]),
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
def test_the_paired_verdict_comes_first(inputs: Inputs, values: dict[str, float], paired: Leader | None, sentence: str) -> None:
    assert said(inputs, values, paired) == sentence + BEFORE


@pytest.mark.parametrize(
    ("pretrained", "checkpoint", "words"),
    [
        (False, None, "training, with random"),
        (True, None, "fine-tuning, with its pretrained"),
        (False, "mine.safetensors", "fine-tuning, with its pretrained"),
    ],
)
def test_a_network_that_began_pretrained_is_not_called_untrained(inputs: Inputs, pretrained: bool, checkpoint: str | None, words: str) -> None:
    def begun(recipe: dict) -> dict:
        backbone = recipe["recipe"]["backbone"] | {"pretrained": pretrained, "checkpoint": checkpoint}
        return recipe | {"recipe": recipe["recipe"] | {"backbone": backbone}}

    changed = replace(inputs, runs=[replace(run, recipe=begun(run.recipe)) for run in inputs.runs])
    found = made_up({"good": 0.5})
    text = said(changed, {"good": 0.5}, None)
    last = tiles(changed, "birds", found, verdict(found, "map_at_r"))[-1]
    assert f"Before {words} weights, the same network reached 12.5." in text
    assert last == {
        "label": f"MAP@R before {words.split(',')[0]}", "figure": "12.5", "unit": "%", "under": f"good, {words.split()[-1]} weights",
    }  # fmt: skip
    assert "untrained" not in text.lower()
