"""The first paragraph: the best method and its significant differences, for one, two and many methods."""

import pytest

from tests.report.page_reader import Element
from tests.report.sections.initial_weights import with_initial_weights
from unseen.report.comparison import Lead
from unseen.report.dataset import DataSet
from unseen.report.sections.verdict import sentence
from unseen.report.summary import Summary, Value, best_method

TEST = "birds has 80 test images of 16 classes that were not seen in training. "
ONCE = "Each method was trained once, so this comparison excludes the variation between trainings. "
OVER = "distinct from zero over these classes, with one training each"
BEFORE = "The network's features before training, without a projection, had 12.5 (random weights)."


def summary_of(values: dict[str, float], seeds: int = 1) -> Summary:
    networks = {
        method: {
            "selected": {"map_at_r": Value(value, value - 0.1, value + 0.1)},
            "features": {"map_at_r": Value(0.125)},
            "untrained": {"map_at_r": Value(0.0625)},
        }
        for method, value in values.items()
    }
    return Summary(tuple(values), ("map_at_r",), networks, seeds)


def text_of(birds: DataSet, summary: Summary, lead: Lead | None) -> str:
    text = str(sentence(birds, summary, best_method(summary, "map_at_r"), lead))
    for tag in ("<b>", "</b>", '<span class="whole">', "</span>"):
        text = text.replace(tag, "")
    return text


TWO = {"good": 0.5, "b": 0.45}
THREE = {"good": 0.5, "b": 0.45, "c": 0.4}
FOUR = {"good": 0.5, "b": 0.45, "c": 0.4, "d": 0.1}
HIGHEST = "good has the highest MAP@R: 50.0 (40.0 – 60.0). "


@pytest.mark.parametrize(
    ("values", "lead", "expected"),
    [
        ({"good": 0.5}, None, "good reaches MAP@R: 50.0 (40.0 – 60.0). "),
        (
            TWO,
            Lead(["b"], [], False, (0.05, 0.02, 0.08)),
            f"{HIGHEST}b has 45.0. The difference of 5.0 points (+2.0 to +8.0) is {OVER}. {ONCE}",
        ),
        (
            {"b": 0.45, "good": 0.5},
            Lead([], ["b"], False, (0.05, -0.02, 0.12)),
            f"{HIGHEST}b has 45.0. The difference of 5.0 points (−2.0 to +12.0) is not {OVER}. {ONCE}",
        ),
        (
            THREE,
            Lead(["b", "c"], [], False),
            f"{HIGHEST}The differences from all 2 other methods are {OVER}. {ONCE}",
        ),
        (
            FOUR,
            Lead(["c", "d"], ["b"], False),
            HIGHEST + f"The differences from c and d are {OVER}. The difference from b is not. " + ONCE,
        ),
        (
            THREE,
            Lead([], ["b", "c"], False),
            f"{HIGHEST}No difference from another method is {OVER}. {ONCE}",
        ),
        (TWO, None, f"{HIGHEST}Its interval overlaps with that of b. "),
        ({"good": 0.5, "b": 0.15}, None, f"{HIGHEST}Its interval lies above all others. "),
    ],
)
def test_the_best_method_and_its_significant_differences(
    birds: DataSet, values: dict[str, float], lead: Lead | None, expected: str
) -> None:
    assert text_of(birds, summary_of(values), lead) == TEST + expected + BEFORE


def test_significant_and_other_differences_of_several_seeds(birds: DataSet) -> None:
    text = text_of(birds, summary_of(FOUR, seeds=2), Lead(["c", "d"], ["b"], True))
    assert "The differences from c and d are significant. The difference from b is not significant." in text


def test_several_seeds_are_named(birds: DataSet, two_seeds_page: Element) -> None:
    text = text_of(birds, summary_of(THREE, seeds=2), Lead(["b", "c"], [], True))
    mean = "good has the highest MAP@R: 50.0 (40.0 – 60.0) as the mean of 2 seeds. "
    assert text == f"{TEST}{mean}The differences from all 2 other methods are significant. {BEFORE}"
    assert "as the mean of 2 seeds" in two_seeds_page.first("p", **{"class": "lede"}).text()


@pytest.mark.parametrize(
    ("pretrained", "checkpoint", "phrases"),
    [
        (False, None, ("training", "random weights")),
        (True, None, ("fine-tuning", "pretrained weights")),
        (False, "mine.safetensors", ("fine-tuning", "pretrained weights")),
    ],
)
def test_a_pretrained_network_is_not_called_untrained(
    birds: DataSet, pretrained: bool, checkpoint: str | None, phrases: tuple[str, str]
) -> None:
    changed = with_initial_weights(birds, pretrained, checkpoint)
    text = text_of(changed, summary_of({"good": 0.5}), None)
    end = " The network's features before {}, without a projection, had 12.5 ({})."
    assert text.endswith(end.format(*phrases))
    assert "untrained" not in text.lower()


def test_the_page_starts_with_the_verdict(page: Element) -> None:
    text = page.first("p", **{"class": "lede"}).text()
    assert text.startswith(TEST + "good has the highest MAP@R: 100.0")
    assert f"The differences from all 2 other methods are {OVER}." in text


def test_without_a_metric_there_is_no_best_method(birds: DataSet) -> None:
    assert str(sentence(birds, birds.summary, None, None)).endswith("training. No metric is available.")
