"""Copies of the shards of a training on a disk of the node: `train.stage_shards`."""

import dataclasses
import os
import shutil
import socket
from pathlib import Path

from unseen.data.shards import Shards
from unseen.runtime.digest import sha256_of
from unseen.runtime.errors import UserError
from unseen.runtime.files import unwritable_is_an_error
from unseen.runtime.flock import held
from unseen.runtime.progress import Progress
from unseen.training.job import Job


def staged(job: Job) -> Job:
    """`job` with the copy of its shards in `job.stage_shards`. The first process of a node makes it, and the
    others wait. Equal shards have one copy; nothing removes it.

    Raises UserError for a disk without the space, and for a copy whose sha256 differs from the manifest.
    """
    if job.stage_shards is None:
        return job
    shards = Shards(job.shards)
    files = {**shards.manifest["shards"], **shards.manifest.get("extras", {})}
    files["index.parquet"] = shards.manifest["index"]
    copy = job.stage_shards / shards.fingerprint[:16] / job.shards.name
    with unwritable_is_an_error(copy):
        copy.mkdir(parents=True, exist_ok=True)
        with held(copy / ".lock", os.O_RDWR | os.O_CREAT):
            if not (copy / "manifest.json").exists():
                _copy(files, job, copy)
                _whole(job.shards / "manifest.json", copy / "manifest.json")
    return dataclasses.replace(job, shards=copy)


def _copy(files: dict[str, str], job: Job, copy: Path) -> None:
    """Copies those of `files` (name: sha256) that a process which was ended has not copied."""
    missing = [name for name in files if not (copy / name).exists()]
    needed = sum((job.shards / name).stat().st_size for name in missing)
    if (free := shutil.disk_usage(copy).free) < needed:
        raise UserError(
            f"{copy} on {socket.gethostname()} has {free / 1e9:.1f} GB, and the shards of {job.dataset} need "
            f"{needed / 1e9:.1f} GB.",
            "Free space there, name a larger disk in train.stage_shards, or remove that line.",
        )
    with Progress(f"copy shards of {job.dataset}", len(missing), "file") as progress:
        for name in missing:
            partial = copy / f".{name}.partial"
            shutil.copyfile(job.shards / name, partial)
            if sha256_of(partial) != files[name]:
                partial.unlink()
                raise UserError(
                    f"{job.shards / name} differs from its manifest, or was copied with errors.",
                    f"Build it again: dvc repro -f ingest@{job.dataset}",
                )
            partial.replace(copy / name)
            progress.advance(1)


def _whole(source: Path, target: Path) -> None:
    partial = target.with_name(f".{target.name}.partial")
    shutil.copyfile(source, partial)
    partial.replace(target)
