"""P x K sampling: valid batches, every image used, every step computed without the previous ones."""

import hashlib

import numpy as np
import pytest

from unseen.data import sampler as module
from unseen.data.sampler import PKSampler, _most_batches, augmentation_keys, make_sampler
from unseen.data.settings import Batch
from unseen.runtime.errors import UserError

# labels need not be 0..C-1
UNEVEN = np.random.default_rng(0).permutation(np.repeat(np.arange(9) * 3 + 5, [2, 3, 4, 5, 9, 17, 30, 4, 1]))


@pytest.fixture(params=["one by one", "trades"])
def arranged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to divide the chunks of an epoch among its batches."""
    if request.param == "trades":
        monkeypatch.setattr(module, "SYSTEMATIC", 0)


def epoch(sampler: PKSampler, number: int) -> np.ndarray:
    first = number * sampler.steps_per_epoch
    return np.stack([sampler.draw(step).positions for step in range(first, first + sampler.steps_per_epoch)])


@pytest.mark.usefixtures("arranged")
@pytest.mark.parametrize(("classes", "images"), [(2, 2), (3, 4), (4, 3), (8, 2), (8, 5)])
def test_every_batch_has_p_distinct_classes_of_k_images(classes: int, images: int) -> None:
    sampler = PKSampler(UNEVEN, Batch(classes=classes, images_per_class=images), seed=1)
    sizes = dict(zip(*np.unique(UNEVEN, return_counts=True), strict=True))
    for number in range(20):
        for positions in epoch(sampler, number):
            groups = positions.reshape(classes, images)
            labels = UNEVEN[groups]
            assert (labels == labels[:, :1]).all()  # class-major
            assert len(set(labels[:, 0].tolist())) == classes
            for group, label in zip(groups, labels[:, 0], strict=True):
                assert len(set(group.tolist())) == min(images, sizes[label])


def test_uses_all_images_but_singletons() -> None:
    sampler = PKSampler(UNEVEN, Batch(classes=3, images_per_class=4), seed=0)
    assert sampler.excluded_classes == 1
    rows = np.concatenate([epoch(sampler, number).ravel() for number in range(60)])
    assert set(rows.tolist()) == set(np.flatnonzero(UNEVEN != 8 * 3 + 5).tolist())


@pytest.mark.usefixtures("arranged")
def test_an_image_of_a_full_class_occurs_at_most_once_per_epoch() -> None:
    sampler = PKSampler(UNEVEN, Batch(classes=3, images_per_class=4), seed=0)
    full = np.isin(
        UNEVEN,
        [label for label, size in zip(*np.unique(UNEVEN, return_counts=True), strict=True) if size >= 4],
    )
    for number in range(10):
        counts = np.bincount(epoch(sampler, number).ravel(), minlength=len(UNEVEN))
        assert counts[full].max() == 1


@pytest.mark.usefixtures("arranged")
def test_an_epoch_uses_every_image_of_equal_classes() -> None:
    """51 classes of 16, P 12, K 4: 204 chunks make 17 complete batches."""
    labels = np.repeat(np.arange(51), 16)
    sampler = PKSampler(labels, Batch(classes=12, images_per_class=4), seed=3)
    assert sampler.steps_per_epoch == 17
    assert sorted(epoch(sampler, 5).ravel().tolist()) == list(range(816))


def test_the_length_of_an_epoch_equals_the_definition() -> None:
    generator = np.random.default_rng(4)
    for _ in range(200):
        chunks = generator.integers(1, 12, generator.integers(3, 15)).astype(np.int64)
        classes = int(generator.integers(2, len(chunks) + 1))
        fits = [t for t in range(1, 400) if sum(min(c, t) for c in chunks.tolist()) >= classes * t]
        assert _most_batches(chunks, classes) == max(fits)


@pytest.mark.slow
@pytest.mark.usefixtures("arranged")
def test_classes_appear_in_proportion_to_their_chunks() -> None:
    labels = np.repeat(np.arange(10), [4, 4, 4, 4, 4, 8, 8, 8, 8, 8])
    sampler = PKSampler(labels, Batch(classes=3, images_per_class=4), seed=0)
    assert sampler.steps_per_epoch == 5
    counts = (
        np.bincount(
            np.concatenate([labels[epoch(sampler, number)[:, ::4]].ravel() for number in range(400)]),
            minlength=10,
        )
        / 400
    )
    np.testing.assert_allclose(counts[:5], 1.0, atol=0.01)
    np.testing.assert_allclose(counts[5:], 2.0, atol=0.01)


@pytest.mark.slow
@pytest.mark.usefixtures("arranged")
def test_pairs_of_classes_share_a_batch_equally_often() -> None:
    labels = np.repeat(np.arange(12), 8)
    sampler = PKSampler(labels, Batch(classes=4, images_per_class=4), seed=0)
    together = np.zeros((12, 12))
    for number in range(400):
        for positions in epoch(sampler, number):
            chosen = labels[positions[::4]]
            together[np.ix_(chosen, chosen)] += 1
    expected = 400 * sampler.steps_per_epoch * (4 * 3) / (12 * 11)
    met = together[~np.eye(12, dtype=bool)]
    assert np.abs(met - expected).max() < 5 * np.sqrt(expected)


@pytest.mark.usefixtures("arranged")
def test_a_single_step_equals_that_of_the_sequence() -> None:
    batch = Batch(classes=3, images_per_class=4)
    sampler = PKSampler(UNEVEN, batch, seed=9)
    steps = 4 * sampler.steps_per_epoch + 1
    sequence = [sampler.draw(step) for step in range(steps)]
    for step in (steps - 1, 0, steps // 2, sampler.steps_per_epoch, sampler.steps_per_epoch - 1):
        single = PKSampler(UNEVEN.copy(), batch, seed=9).draw(step)
        repeated = sampler.draw(step)
        for draw in (single, repeated):
            np.testing.assert_array_equal(draw.positions, sequence[step].positions)
            np.testing.assert_array_equal(draw.keys, sequence[step].keys)


@pytest.mark.parametrize(
    ("sampling", "digest"), [("classes", "0832b75f53fc1518"), ("shuffled", "436bdeac69d05b2d")]
)
def test_the_plans_of_small_sets_keep_their_bytes(sampling: str, digest: str) -> None:
    """Other bytes would change every trained network."""
    generator = np.random.default_rng(3)
    labels = generator.permutation(np.repeat(np.arange(30), np.random.default_rng(2).integers(1, 20, 30)))
    batch = Batch.model_validate({"classes": 5, "images_per_class": 3, "sampling": sampling})
    sampler, content = make_sampler(labels, batch, 7), hashlib.sha256()
    for step in range(3 * sampler.steps_per_epoch + 1):
        draw = sampler.draw(step)
        content.update(draw.positions.tobytes() + draw.keys.tobytes())
    assert content.hexdigest()[:16] == digest


def test_shuffled_images_are_permuted_once_per_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A permutation at each step would be quadratic in the images."""
    seeds = []
    sequence = np.random.SeedSequence
    monkeypatch.setattr(np.random, "SeedSequence", lambda *parts: (seeds.append(parts), sequence(*parts))[1])
    batch = Batch.model_validate({"classes": 5, "images_per_class": 2, "sampling": "shuffled"})
    sampler = make_sampler(np.zeros(100, np.int64), batch, 0)
    for step in range(20):
        sampler.draw(step)
    assert len(seeds) == 20 + 2, "one per step for the augmentation, one per epoch for the permutation"


def test_plans_of_large_sets_use_trades(monkeypatch: pytest.MonkeyPatch) -> None:
    """One batch after the other costs T C per epoch: T batches, C classes."""
    calls: list[str] = []
    for name in ("_one_by_one", "trade"):
        arrange = getattr(module, name)
        monkeypatch.setattr(
            module,
            name,
            lambda *arguments, name=name, arrange=arrange: (calls.append(name), arrange(*arguments))[1],
        )
    batch = Batch(classes=3, images_per_class=4)
    sampler = PKSampler(UNEVEN, batch, seed=0)
    cost = sampler.steps_per_epoch * (len(np.unique(UNEVEN)) - sampler.excluded_classes)
    for limit, expected in ((cost, "_one_by_one"), (cost - 1, "trade")):
        monkeypatch.setattr(module, "SYSTEMATIC", limit)
        PKSampler(UNEVEN, batch, seed=0).draw(0)
        assert calls.pop() == expected
    assert not calls


def test_published_sets_are_below_the_limit_of_trades_and_a_million_images_above() -> None:
    """T C with batches of 128 images: of Stanford Online Products, the largest published set, and of 10^5
    classes."""
    assert 59_551 // 128 * 11_318 < module.SYSTEMATIC < 10**6 // 128 * 10**5


@pytest.mark.usefixtures("arranged")
def test_batches_are_planned_once_per_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan at each step would be quadratic in the images."""
    planned: list[int] = []
    plan = PKSampler._plan
    monkeypatch.setattr(
        PKSampler, "_plan", lambda self, number: (planned.append(number), plan(self, number))[1]
    )
    sampler = PKSampler(UNEVEN, Batch(classes=3, images_per_class=4), seed=0)
    assert sampler.steps_per_epoch > 1
    for number in range(3):
        epoch(sampler, number)
    assert planned == [0, 1, 2]


def test_seeds_and_epochs_differ() -> None:
    batch = Batch(classes=3, images_per_class=4)
    sampler = PKSampler(UNEVEN, batch, seed=0)
    assert not np.array_equal(epoch(sampler, 0), epoch(sampler, 1))
    assert not np.array_equal(epoch(sampler, 0), epoch(PKSampler(UNEVEN, batch, seed=1), 0))


def test_keys_are_unique_over_epochs_seeds_and_repetitions() -> None:
    labels = np.repeat(np.arange(30), 2)  # K 4: every image twice or more in its chunk
    keys = []
    for seed in range(3):
        sampler = PKSampler(labels, Batch(classes=5, images_per_class=4), seed=seed)
        keys += [sampler.draw(step).keys for step in range(20 * sampler.steps_per_epoch)]
    all_keys = np.concatenate(keys)
    assert all_keys.dtype == np.uint64
    assert len(np.unique(all_keys)) == len(all_keys) == 3 * 20 * 6 * 20
    bits = np.unpackbits(all_keys.view(np.uint8))
    assert abs(bits.mean() - 0.5) < 0.01


def test_a_key_is_a_function_of_seed_epoch_position_and_occurrence() -> None:
    """The key is independent of the step: an image has another crop in another batch of the epoch."""
    labels = np.repeat(np.arange(6), 8)
    sampler = PKSampler(labels, Batch(classes=3, images_per_class=4), seed=2)
    for step in range(sampler.steps_per_epoch, 2 * sampler.steps_per_epoch):
        draw = sampler.draw(step)
        np.testing.assert_array_equal(
            draw.keys, augmentation_keys(2, 1, draw.positions, np.zeros(12, np.int64))
        )


def test_refuses_too_few_classes() -> None:
    with pytest.raises(
        UserError, match=r"needs 9 classes, but only 8 can be trained on \(1 more have one image only\)"
    ):
        PKSampler(UNEVEN, Batch(classes=9, images_per_class=2), seed=0)
    with pytest.raises(UserError, match="only 0 can"):
        PKSampler(np.zeros(0, np.int64), Batch(classes=2, images_per_class=2), seed=0)
    with pytest.raises(ValueError, match="must not be negative"):
        PKSampler(UNEVEN, Batch(classes=8, images_per_class=2), seed=0).draw(-1)


def test_shuffled_batches_have_each_image_once_per_epoch() -> None:
    batch = Batch(classes=3, images_per_class=4, sampling="shuffled")
    sampler = make_sampler(UNEVEN, batch, seed=3)
    full = len(UNEVEN) // 12
    assert sampler.steps_per_epoch == full
    assert sampler.excluded_classes == 0
    epochs = [
        np.concatenate([sampler.draw(step).positions for step in range(e * full, (e + 1) * full)])
        for e in range(2)
    ]
    for positions in epochs:
        assert len(np.unique(positions)) == 12 * full
    assert not np.array_equal(*epochs)
    assert not np.array_equal(sampler.draw(0).keys, sampler.draw(full).keys)
    np.testing.assert_array_equal(
        make_sampler(UNEVEN.copy(), batch, seed=3).draw(full + 1).positions, sampler.draw(full + 1).positions
    )
    together = np.concatenate([make_sampler(UNEVEN, batch, seed).draw(0).positions for seed in range(400)])
    counts = np.bincount(together, minlength=len(UNEVEN))
    expected = 400 * 12 / len(UNEVEN)
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)


def test_refuses_an_incomplete_shuffled_batch() -> None:
    with pytest.raises(UserError, match="has 80 images, but there are only 12"):
        make_sampler(np.arange(12), Batch(sampling="shuffled"), seed=0)
    with pytest.raises(ValueError, match="must not be negative"):
        make_sampler(np.arange(120), Batch(sampling="shuffled"), seed=0).draw(-1)


def test_one_image_of_each_class_keeps_classes_of_one_image() -> None:
    labels = np.array([0, 1, 2, 2, 3, 3, 3])
    sampler = make_sampler(labels, Batch(classes=4, images_per_class=1), seed=0)
    assert sampler.excluded_classes == 0
    assert sorted(labels[sampler.draw(0).positions].tolist()) == [0, 1, 2, 3]


def test_statistics_equal_those_of_the_released_scheme() -> None:
    """The scheme of the MS code, written down: chunks of K of shuffled classes; P classes, each as likely as
    any other with a chunk left; a new epoch if fewer than P classes have one. Classes of the size of SOP."""
    random = np.random.default_rng(0)
    sizes = random.integers(2, 13, 400)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    classes, images, draws = 36, 5, 600
    ours = make_sampler(labels, Batch(classes=classes, images_per_class=images), 0)
    frequency = np.zeros((2, len(sizes)))
    left = np.zeros(len(sizes), int)
    for step in range(draws):
        frequency[0] += np.bincount(labels[ours.draw(step).positions], minlength=len(sizes)) / images
        if (left > 0).sum() < classes:
            left = np.maximum(1, sizes // images)
        chosen = random.choice(np.flatnonzero(left), classes, replace=False)
        left[chosen] -= 1
        frequency[1, chosen] += 1
    by_chunks = np.maximum(1, sizes // images)
    means = [[row[by_chunks == count].mean() for count in (1, 2)] for row in frequency]
    assert np.allclose(means[0], means[1], rtol=0.03)
    assert np.isclose(means[0][1], 2 * means[0][0], rtol=0.05)
