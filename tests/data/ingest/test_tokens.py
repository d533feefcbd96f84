"""The token corpus: bags contain tokens of their class and shared tokens, in the shares of the study."""

from pathlib import Path

import numpy as np
import pytest

from unseen.data.class_split import hold_out
from unseen.data.decode import decode
from unseen.data.ingest.ingest import ingest
from unseen.data.ingest.settings import IngestSettings, TokensSource
from unseen.data.ingest.sources import tokens
from unseen.data.shards import Shards
from unseen.runtime.errors import UserError

SMALL = TokensSource(train_per_class=4, validation_per_class=3, test_per_class=2)


def test_each_row_is_a_bag(tmp_path: Path) -> None:
    manifest = ingest(SMALL, IngestSettings(), tmp_path / "out", "tokens", 1)
    shards = Shards(tmp_path / "out", verify=True)
    assert manifest["counts"] == {
        "train": {"images": 112, "classes": 16},
        "test": {"images": 32, "classes": 16},
    }
    assert manifest["tokens"] == 68
    assert manifest["unseen_classes"] is False
    assert manifest["ingest"]["formats"] == {"pixels L": 144}
    assert set(map(tuple, shards.sizes.tolist())) == {(50, 1)}
    assert shards.class_names[0] == "train/class000"
    assert shards.class_names[-1] == "test/class015"
    for row in range(144):
        rgb = decode(shards.image(row))
        assert np.array_equal(rgb[..., 0], rgb[..., 1])
        assert np.array_equal(rgb[..., 0], rgb[..., 2])
        label = int(shards.class_names[shards.labels[row]][-3:])
        bag = rgb[0, :, 0]
        of_class, shared = (bag // 4 == label).sum(), (bag >= 64).sum()
        assert of_class + shared == 50
        assert min(of_class, shared) >= 1


def test_defaults_are_those_of_the_study() -> None:
    source = TokensSource()
    assert source.classes * source.class_tokens + source.shared_tokens == 68
    assert source.train_per_class == 512 * 8, "of each class"
    assert (source.bag, source.background, source.deviation) == (50, 0.5, 0.1)
    assert (source.validation_per_class, source.test_per_class) == (128, 128)


def test_validation_uses_unseen_bags_of_all_classes(tmp_path: Path) -> None:
    ingest(SMALL, IngestSettings(), tmp_path / "out", "tokens", 1)
    split = hold_out(Shards(tmp_path / "out"), 0.2, 0)
    assert split.classes == 16
    assert np.bincount(split.labels).tolist() == [4] * 16
    assert np.unique(split.validation_labels, return_counts=True)[1].tolist() == [3] * 16
    assert not set(split.rows) & set(split.validation_rows)


@pytest.mark.slow
def test_shares_and_tokens_have_the_published_distribution() -> None:
    generator = np.random.default_rng(0)
    bags = np.array([tokens.bag(TokensSource(), 7, generator) for _ in range(4000)])
    share = (bags >= 64).mean(axis=1)
    assert abs(share.mean() - 0.5) < 4 * 0.1 / np.sqrt(4000)
    # Rounding to multiples of 1/50 adds a variance of (1/50)^2 / 12.
    assert share.std() == pytest.approx(np.sqrt(0.1**2 + 0.02**2 / 12), rel=0.05)
    counts = np.bincount(bags.ravel(), minlength=68)
    assert set(np.flatnonzero(counts)) == {28, 29, 30, 31, 64, 65, 66, 67}
    assert counts[counts > 0] == pytest.approx(4000 * 50 / 8, rel=0.05)
    # The kind of a token does not depend on its position in the bag.
    assert (bags >= 64).mean(axis=0) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(("background", "shared"), [(0.0, 1), (1.0, 49)])
def test_a_bag_contains_shared_tokens_and_tokens_of_its_class(background: float, shared: int) -> None:
    source = TokensSource(background=background, deviation=0.0)
    bag = tokens.bag(source, 0, np.random.default_rng(0))
    assert (bag >= 64).sum() == shared


def test_bags_differ_and_depend_only_on_name_and_seed(tmp_path: Path) -> None:
    read = tokens.Bags(SMALL)
    names = ["train/class000/00000.png", "train/class000/00001.png"]
    names += ["train/class001/00000.png", "test/class000/00000.png"]
    bags = [read(name).tobytes() for name in names]
    assert len(set(bags)) == 4
    assert [tokens.Bags(SMALL)(name).tobytes() for name in reversed(names)] == bags[::-1]
    assert tokens.Bags(SMALL.model_copy(update={"seed": 1}))(names[0]).tobytes() != bags[0]


def test_refuses_more_tokens_than_a_pixel_has_values() -> None:
    with pytest.raises(UserError, match="has 260 tokens; a pixel has 256 values"):
        tokens.collection(TokensSource(classes=64))
