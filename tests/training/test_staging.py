"""Copies of shards on a disk of the node."""

import dataclasses
from collections import namedtuple
from pathlib import Path

import pytest

from tests.training.jobs import job, recipe, write_tiny_set
from unseen.data.shards import Shards
from unseen.runtime.errors import UserError
from unseen.training import staging
from unseen.training.job import Job
from unseen.training.staging import staged


@pytest.fixture
def staging_job(tmp_path: Path) -> Job:
    write_tiny_set(tmp_path)
    return dataclasses.replace(job(tmp_path, recipe("baseline")), stage_shards=tmp_path / "disk")


def test_a_copy_has_the_images_and_is_made_once(staging_job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = staged(staging_job)
    assert copy.shards.is_relative_to(staging_job.root / "disk")
    assert Shards(copy.shards, verify=True).fingerprint == Shards(staging_job.shards).fingerprint
    assert not list(copy.shards.glob(".*.partial"))
    monkeypatch.delattr(staging, "_copy")
    assert staged(staging_job) == copy
    assert staged(dataclasses.replace(staging_job, stage_shards=None)).shards == staging_job.shards


def test_a_copy_that_was_interrupted_continues(staging_job: Job) -> None:
    copy = staged(staging_job)
    (copy.shards / "manifest.json").unlink()
    shard = copy.shards / "shard-00000.arrow"
    written = shard.stat().st_mtime_ns
    (copy.shards / "index.parquet").unlink()
    staged(staging_job)
    assert shard.stat().st_mtime_ns == written
    Shards(copy.shards, verify=True)


def test_refuses_a_full_disk_and_a_damaged_shard(staging_job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "free")
    with monkeypatch.context() as patch:
        patch.setattr(staging.shutil, "disk_usage", lambda path: usage(free=10))
        with pytest.raises(UserError, match=r"has 0\.0 GB, and the shards of tiny need") as caught:
            staged(staging_job)
        assert "train.stage_shards" in caught.value.remedy
    shard = staging_job.shards / "shard-00000.arrow"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    with pytest.raises(UserError, match=r"shard-00000\.arrow differs from its manifest"):
        staged(staging_job)
