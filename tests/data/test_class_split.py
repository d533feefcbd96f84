"""The classes that are held out of training."""

from pathlib import Path

import numpy as np
import pytest

from unseen.data import class_split
from unseen.data.class_split import VALIDATION, _sampled, all_classes, hold_out, split_classes
from unseen.data.settings import Fold
from unseen.data.shard_writer import ShardWriter
from unseen.data.shards import Shards
from unseen.runtime.errors import UserError


def test_held_out_classes_depend_on_the_seed_and_are_not_trained_on() -> None:
    labels = np.repeat(np.arange(5, 25), 3)
    rows = np.arange(100, 160)
    splits = set()
    for seed in range(5):
        split = split_classes(rows, labels, 0.25, seed)
        assert split.classes == 15
        held_out = set(split.validation_labels.tolist())
        assert len(held_out) == 5
        assert sorted([*split.rows, *split.validation_rows]) == rows.tolist()
        train_classes = sorted(set(range(5, 25)) - held_out)
        # 0 ... 14 in the order of the labels
        assert [train_classes[label] for label in split.labels] == labels[split.rows - 100].tolist()
        assert split.validation_labels.tolist() == labels[split.validation_rows - 100].tolist()
        repeated = split_classes(rows, labels, 0.25, seed)
        assert repeated.validation_rows.tolist() == split.validation_rows.tolist()
        splits.add(tuple(sorted(held_out)))
    assert len(splits) == 5


@pytest.mark.parametrize(
    ("labels", "share", "message"),
    [
        (
            [0, 0, 1, 1, 2, 2, 3, 3],
            0.2,
            "0.2 of 4 train classes leaves 3 to train on and holds out 1, of which 1 have two",
        ),
        ([0, 0, 1, 1, 2, 2, 3, 3], 0.9, "0.9 of 4 train classes leaves 0 to train on and holds out 4"),
        ([0, 1, 2, 3, 4, 5], 0.5, "holds out 3, of which 0 have two"),
        ([0, 0, 0], 0.2, "0.2 of 1 train classes leaves 1"),
    ],
)
def test_refuses_too_few_classes(labels: list[int], share: float, message: str) -> None:
    with pytest.raises(UserError, match=message):
        split_classes(np.arange(len(labels)), np.array(labels), share, seed=0)


FOLDS = {
    "cub": (0, 25, 50, 75, 100),
    "cars": (0, 24, 49, 73, 98),
    "sop": (0, 2829, 5659, 8488, 11318),
    "inshop": (0, 999, 1998, 2997, 3997),
}


@pytest.mark.parametrize("name", FOLDS)
def test_a_fold_holds_out_its_block_of_the_labels_in_order(name: str) -> None:
    """Model k of 4 is validated on block 4 - k, for any label values, any order of the rows and any seed."""
    bounds = FOLDS[name]
    classes = bounds[-1]
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(classes) + 7, 2))
    rows = np.arange(2 * classes) + 50
    for model in (1, 2, 3, 4):
        start, stop = bounds[4 - model], bounds[5 - model]
        split = split_classes(rows, labels, 0.2, seed=model, fold=Fold(model=model))
        assert np.unique(split.validation_labels).tolist() == list(range(start + 7, stop + 7))
        assert split.classes == classes - (stop - start)
        assert np.unique(split.labels).tolist() == list(range(split.classes))
        train_labels = np.concatenate([np.arange(start), np.arange(stop, classes)]) + 7
        assert np.array_equal(train_labels[split.labels], labels[split.rows - 50])
        assert sorted([*split.rows, *split.validation_rows]) == rows.tolist()


def test_refuses_a_fold_that_cannot_be_validated() -> None:
    labels = np.repeat(np.arange(5), 2)
    with pytest.raises(
        UserError, match=r"5 train classes cannot be divided into 6 folds.\n  Lower ensemble.folds"
    ):
        split_classes(np.arange(10), labels, 0.2, 0, Fold(model=1, folds=6))
    message = (
        "Model 4 of 4 folds of 5 train classes leaves 4 to train on and holds out 1, of which 1 have two "
        "images or more"
    )
    with pytest.raises(UserError, match=message):
        split_classes(np.arange(10), labels, 0.2, 0, Fold(model=4))
    with pytest.raises(ValueError, match="models are numbered 1 to 4, got 5"):
        Fold(model=5)


def test_all_classes_are_trained_on_without_validation() -> None:
    rows, labels = np.arange(8) + 20, np.array([3, 3, 5, 5, 9, 9, 4, 4])
    split = all_classes(rows, labels)
    assert split.classes == 4
    assert np.array_equal(split.rows, rows)
    assert split.labels.tolist() == [0, 0, 2, 2, 3, 3, 1, 1]
    assert not len(split.validation_rows)
    assert not len(split.validation_labels)
    with pytest.raises(UserError, match="1 train classes; training needs 2 or more"):
        all_classes(rows[:2], labels[:2])


def test_validates_a_seeded_sample_of_many_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other held-out classes are not trained on either. Classes of one image are not drawn."""
    monkeypatch.setattr(class_split, "VALIDATED", 4)
    labels = np.repeat(np.arange(40), [1, *[3] * 39])
    whole = split_classes(np.arange(len(labels)), labels, 0.5, seed=3)
    sampled = _sampled(whole, seed=3)
    drawn = set(sampled.validation_labels.tolist())
    assert len(drawn) == 4
    assert drawn <= set(whole.validation_labels.tolist()) - {0}
    assert labels[sampled.validation_rows].tolist() == sampled.validation_labels.tolist()
    assert len(sampled.validation_rows) == 12
    assert sampled.rows.tolist() == whole.rows.tolist()
    assert _sampled(whole, seed=3).validation_rows.tolist() == sampled.validation_rows.tolist()
    assert set(_sampled(whole, seed=4).validation_labels.tolist()) != drawn
    monkeypatch.setattr(class_split, "VALIDATED", 20)
    assert _sampled(whole, seed=3) is whole


@pytest.mark.parametrize("held_out_by", ["share", "group"])
def test_a_training_validates_a_sample_of_its_held_out_classes(
    held_out_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Classes 0 to 11 of three images; the group of the set contains classes 0 to 5."""
    with ShardWriter(tmp_path, [f"class {label}" for label in range(12)], 2**20) as writer:
        for row in range(36):
            group = VALIDATION if held_out_by == "group" and row < 18 else None
            writer.add(b"image", row // 3, "train", f"{row}.jpg", 1, 1, group=group)
        writer.finish({"dataset": "images"})
    shards = Shards(tmp_path)
    whole = hold_out(shards, 0.5, seed=1)
    assert len(set(whole.validation_labels.tolist())) == 6
    monkeypatch.setattr(class_split, "VALIDATED", 4)
    split = hold_out(shards, 0.5, seed=1)
    validated = set(split.validation_labels.tolist())
    assert len(validated) == 4
    assert validated < set(whole.validation_labels.tolist())
    assert split.validation_labels.tolist() == shards.labels[split.validation_rows].tolist()
    assert split.rows.tolist() == whole.rows.tolist(), "the other held-out classes are not trained on"
