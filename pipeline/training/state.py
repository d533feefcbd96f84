"""Where a run keeps what it needs to resume: state/<dataset>/<method>/<seed>-<hash>/, outside the outs, which DVC deletes before a run.

The hash covers everything that decides the bytes of the result: resolved recipe, data, code, seed, worker count, threads, device kind, libraries.
So the same command resumes, and a changed recipe, data set or code starts anew.
"""

import importlib.metadata
import shutil
from pathlib import Path
from typing import Any

from pipeline.config.inputs import digest
from pipeline.runtime.digest import sha256_of
from pipeline.runtime.errors import UserError
from pipeline.training.job import Job

_LIBRARIES = ("torch", "torchvision", "timm", "transformers", "numpy", "opencv-python-headless", "simplejpeg", "pillow")


def identity(job: Job, fingerprint: str, world: int, device: str) -> dict[str, Any]:
    """What decides the result of `job`, as plain values. `fingerprint` is that of the shards, `device` a kind such as `cpu`."""
    checkpoint = job.recipe["backbone"]["checkpoint"]
    return {
        "recipe": job.recipe,
        "seed": job.seed,
        "shards": fingerprint,
        "backbone": None if checkpoint is None else _checkpoint_digest(Path(job.root) / checkpoint),
        "code": job.code,
        "workers": world,
        "threads": job.threads,
        "device": device,
        "libraries": {name: importlib.metadata.version(name) for name in _LIBRARIES},
    }


def state_directory(job: Job, value: dict[str, Any]) -> Path | None:
    """The directory of the run that `value` identifies, or None where the job keeps no state."""
    return None if job.state is None else Path(job.state) / job.dataset / job.method / f"{job.seed}-{digest(value)}"


def other_states(directory: Path) -> list[Path]:
    """States of the same data set, method and seed under another recipe, other data or other code."""
    seed = directory.name.partition("-")[0]
    return sorted(path for path in directory.parent.glob(f"{seed}-*") if path != directory)


def remove_states(directory: Path) -> None:
    """After a finished run: its state goes, and so do those that older settings of the same run left behind."""
    for path in (directory, *other_states(directory)):
        shutil.rmtree(path, ignore_errors=True)


def _checkpoint_digest(path: Path) -> str:
    try:
        return sha256_of(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.", "Correct the path in the recipe (backbone.checkpoint).") from None
