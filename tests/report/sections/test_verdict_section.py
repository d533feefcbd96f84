"""The first paragraph: the best method and the verdicts on it, for one, two and many methods."""

import pytest

from tests.report.page_reader import Element
from tests.report.sections.initial_weights import with_initial_weights
from tests.report.test_method_pairs import SEEDS, verdict
from unseen.evaluation.statistics.seeds import Average
from unseen.report.comparison import Lead
from unseen.report.dataset import DataSet
from unseen.report.sections.verdict import sentence
from unseen.report.summary import Summary, Value, best_method

TEST = "birds has 80 test images of 16 classes that were not seen in training. "
ONCE = "Each method was trained once, so this comparison excludes the variation between trainings. "
OVER = "Over these classes it is distinct from {}, with one training each. "
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


def lead_of(seeds: Average | None, **verdicts: tuple[float | None, float | None, float]) -> Lead:
    return {name: verdict(*given, seeds) for name, given in verdicts.items()}


YES, OPEN, EQUAL = (0.02, 0.08, 0.01), (-0.02, 0.12, 0.4), (-0.002, 0.003, 0.8)


@pytest.mark.parametrize(
    ("values", "lead", "expected"),
    [
        ({"good": 0.5}, None, "good reaches MAP@R: 50.0 (40.0 – 60.0). "),
        (
            TWO,
            lead_of(None, b=YES),
            f"{HIGHEST}b has 50.0; the difference is 5.0 points (+2.0 to +8.0). {OVER.format('b')}{ONCE}",
        ),
        (
            {"b": 0.45, "good": 0.5},
            lead_of(None, b=OPEN),
            f"{HIGHEST}b has 50.0; the difference is 5.0 points (−2.0 to +12.0). "
            f"Whether it is better than b is open. {ONCE}",
        ),
        (THREE, lead_of(None, b=YES, c=YES), f"{HIGHEST}{OVER.format('all 2 other methods')}{ONCE}"),
        (
            FOUR,
            lead_of(None, b=OPEN, c=YES, d=YES),
            f"{HIGHEST}Whether it is better than b is open. {OVER.format('c and d')}{ONCE}",
        ),
        (
            FOUR,
            lead_of(None, b=YES),
            f"{HIGHEST}b has 50.0; the difference is 5.0 points (+2.0 to +8.0). {OVER.format('b')}{ONCE}",
        ),
        (
            TWO,
            {"b": verdict(None, None, 0.01, classes=7)},
            f"{HIGHEST}b has 50.0; the difference is 0.0 points (no interval with fewer than 8 classes). "
            f"To decide whether it is better than b, 7 classes are too few: 16 are needed. {ONCE}",
        ),
        (TWO, None, f"{HIGHEST}The methods are not compared: MAP@R has no values of queries by class. "),
    ],
)
def test_the_best_method_and_the_verdicts_on_it(
    birds: DataSet, values: dict[str, float], lead: Lead | None, expected: str
) -> None:
    assert text_of(birds, summary_of(values), lead) == TEST + expected + BEFORE


def test_verdicts_of_several_seeds(birds: DataSet, two_seeds_page: Element) -> None:
    lead = lead_of(SEEDS, b=OPEN, c=YES, d=EQUAL)
    mean = "good has the highest MAP@R: 50.0 (40.0 – 60.0) as the mean of 2 seeds. "
    verdicts = "Whether it is better than b is open. It is better than c. It equals d within 0.3 points. "
    assert text_of(birds, summary_of(FOUR, seeds=2), lead) == TEST + mean + verdicts + BEFORE
    text = text_of(birds, summary_of(THREE, seeds=2), lead_of(SEEDS, b=YES, c=YES))
    assert text == f"{TEST}{mean}It is better than all 2 other methods. {BEFORE}"
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
    assert OVER.format("all 2 other methods") in text


def test_without_a_metric_there_is_no_best_method(birds: DataSet) -> None:
    assert str(sentence(birds, birds.summary, None, None)).endswith("training. No metric is available.")
