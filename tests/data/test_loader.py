"""Loading gives equal batches for any number of threads and workers, names the image in errors, and ends its
threads."""

import gc
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from unseen.data import loader as module
from unseen.data.decode import decode
from unseen.data.loader import EvalLoader, TrainBatch, TrainLoader, normalize
from unseen.data.sampler import PKSampler
from unseen.data.settings import Batch, Input
from unseen.data.shard_writer import ShardWriter
from unseen.data.shards import Shards
from unseen.data.transforms import crop_for_testing, crop_for_training
from unseen.runtime.errors import UserError

INPUT = Input(size=24, resize=28)
BATCH = Batch(classes=4, images_per_class=3)
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
ROWS = np.arange(6, 60)


def train_loader(
    shards: Shards, rank: int = 0, world: int = 1, threads: int = 1, seed: int = 0
) -> TrainLoader:
    labels = shards.labels[ROWS] - 1
    return TrainLoader(shards, ROWS, labels, PKSampler(labels, BATCH, seed), INPUT, rank, world, threads)


def loader_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("loader")]


def assert_equal(a: list[TrainBatch], b: list[TrainBatch]) -> None:
    assert [batch.step for batch in a] == [batch.step for batch in b]
    for left, right in zip(a, b, strict=True):
        assert torch.equal(left.images, right.images)
        assert torch.equal(left.labels, right.labels)
        assert torch.equal(left.samples, right.samples)


def test_a_batch_has_the_rows_of_the_sampler(shards: Shards) -> None:
    loader = train_loader(shards)
    (batch,) = loader.iterate(5, 6)
    draw = loader.sampler.draw(5)
    assert batch.step == 5
    assert batch.images.dtype == torch.uint8
    assert batch.images.shape == (12, 3, 24, 24)
    assert batch.images.is_contiguous(memory_format=torch.channels_last)
    assert batch.labels.dtype == torch.int64
    assert batch.samples.tolist() == draw.positions.tolist()
    assert batch.labels.tolist() == (shards.labels[ROWS] - 1)[draw.positions].tolist()
    for image, position, key in zip(batch.images, draw.positions, draw.keys, strict=True):
        expected = np.empty((3, 24, 24), np.uint8)
        crop_for_training(decode(shards.image(int(ROWS[position]))), int(key), INPUT, expected)
        np.testing.assert_array_equal(image.numpy(), expected)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [2, 3, 16])
def test_threads_do_not_change_batches(shards: Shards, threads: int) -> None:
    assert_equal(
        list(train_loader(shards, threads=threads).iterate(0, 12)), list(train_loader(shards).iterate(0, 12))
    )


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3, 4, 12])
def test_slices_of_the_workers_make_the_global_batch(shards: Shards, world: int) -> None:
    ranks = [list(train_loader(shards, rank, world, threads=2).iterate(3, 9)) for rank in range(world)]
    joined = [
        TrainBatch(
            slices[0].step,
            *(
                torch.cat([getattr(part, name) for part in slices])
                for name in ("images", "labels", "samples")
            ),
        )
        for slices in zip(*ranks, strict=True)
    ]
    assert_equal(joined, list(train_loader(shards).iterate(3, 9)))


@pytest.mark.slow
def test_a_restart_continues_with_the_same_batches(shards: Shards) -> None:
    uninterrupted = list(train_loader(shards).iterate(0, 14))
    assert_equal(uninterrupted[9:], list(train_loader(shards, threads=2).iterate(9, 14)))
    assert list(train_loader(shards).iterate(4, 4)) == []


def test_refuses_a_rank_beyond_the_workers(shards: Shards) -> None:
    with pytest.raises(ValueError, match="rank 2 of 2"):
        train_loader(shards, rank=2, world=2)


@pytest.mark.parametrize("threads", [1, 3])
def test_evaluation_keeps_the_order_of_the_rows(shards: Shards, threads: int) -> None:
    rows = np.array([41, 3, 7, 7, 20, 59, 0])
    loader = EvalLoader(shards, rows, INPUT, batch_size=3, threads=threads)
    batches = list(loader)
    assert len(loader) == len(batches) == 3
    assert [len(images) for images, _ in batches] == [3, 3, 1]
    assert torch.cat([ids for _, ids in batches]).tolist() == rows.tolist()
    for image, row in zip(torch.cat([images for images, _ in batches]), rows.tolist(), strict=True):
        expected = np.empty((3, 24, 24), np.uint8)
        crop_for_testing(decode(shards.image(row)), INPUT, expected)
        np.testing.assert_array_equal(image.numpy(), expected)
    assert len(list(loader)) == 3  # a second iteration starts at the first row
    assert list(EvalLoader(shards, rows[:0], INPUT, batch_size=3)) == []


@pytest.fixture
def damaged(tmp_path: Path, shards: Shards) -> Shards:
    """Twelve images of two classes; row 7 is truncated."""
    directory = tmp_path / "damaged"
    directory.mkdir()
    with ShardWriter(directory, ["a", "b"], 2**20) as writer:
        for row in range(12):
            image = shards.image(row).tobytes()
            writer.add(
                image if row != 7 else image[: len(image) // 2],
                row // 6,
                "train",
                f"folder/{row}.jpg",
                10,
                10,
            )
        writer.finish({})
    return Shards(directory)


@pytest.mark.parametrize("threads", [1, 3])
def test_the_error_names_a_corrupt_image(damaged: Shards, threads: int) -> None:
    iterator = iter(EvalLoader(damaged, np.arange(12), INPUT, batch_size=2, threads=threads))
    delivered = []
    with pytest.raises(
        UserError,
        match=(
            r"row 7 in .*damaged, from folder/7.jpg, cannot be decoded: Premature(.|\n)*dvc repro -f "
            r"ingest@damaged"
        ),
    ):
        for _, rows in iterator:
            delivered += rows.tolist()
    assert delivered == list(range(6))  # all rows before the corrupt one
    assert not loader_threads()
    labels = damaged.labels
    sampler = PKSampler(labels, Batch(classes=2, images_per_class=6), seed=0)
    with pytest.raises(UserError, match="row 7"):
        list(TrainLoader(damaged, np.arange(12), labels, sampler, INPUT, threads=threads).iterate(0, 3))
    assert not loader_threads()


@pytest.mark.slow
def test_all_threads_end(shards: Shards) -> None:
    iterator = train_loader(shards, threads=3).iterate(0, 1000)
    next(iterator)
    assert loader_threads()
    iterator.close()
    assert not loader_threads()

    abandoned = iter(EvalLoader(shards, ROWS, INPUT, batch_size=2, threads=3))
    next(abandoned)
    del abandoned
    gc.collect()
    assert not loader_threads()

    assert len(list(train_loader(shards, threads=3).iterate(0, 5))) == 5
    assert not loader_threads()
    train_loader(shards, threads=3).iterate(0, 5)  # never started
    assert not loader_threads()


def test_prefetching_is_bounded(shards: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = train_loader(shards, threads=2)
    steps = []
    draw = loader.sampler.draw
    monkeypatch.setattr(loader.sampler, "draw", lambda step: (steps.append(step), draw(step))[1])
    iterator = loader.iterate(0, 1000)
    for step in range(5):
        assert next(iterator).step == step
        assert max(steps) == step + module.AHEAD
    iterator.close()


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_normalisation_against_its_definition(memory_format: torch.memory_format) -> None:
    statistics = ((0.1, 0.5, 0.9), (0.01, 0.3, 2.0))
    images = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16).repeat(2, 3, 1, 1)
    images = images.contiguous(memory_format=memory_format)
    result = normalize(images, *statistics)
    mean, std = (np.array(values).reshape(3, 1, 1) for values in statistics)
    expected = (images.numpy().astype(np.float64) / 255 - mean) / std
    assert result.dtype == torch.float32
    assert result.is_contiguous(memory_format=memory_format)
    # The summands are rounded twice.
    bound = 2**-23 * (images.numpy() / 255 + mean) / std
    assert (np.abs(result.numpy() - expected) <= bound + 1e-12).all()
    assert images.dtype == torch.uint8


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_normalisation_on_a_gpu() -> None:
    images = torch.randint(0, 256, (4, 3, 24, 24), dtype=torch.uint8)
    result = normalize(images.cuda(), *IMAGENET)
    assert result.is_cuda
    torch.testing.assert_close(result.cpu(), normalize(images, *IMAGENET), rtol=1e-6, atol=1e-6)
