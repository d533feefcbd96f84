"""The tiles: size of the test, highest numbers, the features before training."""

import pytest

from tests.report.page_reader import Element
from tests.report.sections.initial_weights import with_initial_weights
from unseen.report.dataset import DataSet
from unseen.report.sections.key_numbers import tiles


def test_the_tiles_of_the_page(page: Element, birds: DataSet) -> None:
    best = birds.best
    assert best is not None
    labels = [
        label.text() for label in page.first("ul", **{"class": "tiles"}).all("div", **{"class": "label"})
    ]
    assert labels == ["Unseen classes", "Highest MAP@R", "Highest Recall@1", "MAP@R before training"]
    figures = [
        item.text() for item in page.first("ul", **{"class": "tiles"}).all("div", **{"class": "figure"})
    ]
    assert figures[:2] == ["16", f"{100 * best.value.value:.1f} %"]


@pytest.mark.parametrize(
    ("pretrained", "checkpoint", "word", "weights"),
    [
        (False, None, "training", "random"),
        (True, None, "fine-tuning", "pretrained"),
        (False, "mine.safetensors", "fine-tuning", "pretrained"),
    ],
)
def test_the_floor_names_its_weights(
    birds: DataSet, pretrained: bool, checkpoint: str | None, word: str, weights: str
) -> None:
    changed = with_initial_weights(birds, pretrained, checkpoint)
    last = tiles(changed, changed.summary, changed.best)[-1]
    assert (last["label"], last["under"]) == (
        f"MAP@R before {word}",
        f"good, {weights} weights, no projection",
    )


def test_no_result_leaves_the_size_of_the_test(birds: DataSet) -> None:
    assert [tile["label"] for tile in tiles(birds, birds.summary, None)] == ["Unseen classes"]
