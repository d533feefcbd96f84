"""The state of a run: state/<dataset>/<method>/<seed>-<hash>/.

It is outside the outputs, which DVC deletes before a run. The hash covers everything that determines the
bytes of the result but the number of workers, the run's identity: resolved recipe, shards, checkpoint of
the backbone, code, seed, kind of device, effective precision, libraries. So the same command resumes, also
with another number of workers, which changes no batch, and the loss only by rounding. A run of another
identity starts from the first step.
"""

import importlib.metadata
import json
import shutil
import uuid
from pathlib import Path
from typing import Any

from unseen.config.inputs import digest
from unseen.runtime.digest import sha256_of
from unseen.runtime.errors import UserError
from unseen.training.job import Job

_HASHES = ("backbone", "code", "shards")
_LIBRARIES = (
    "torch",
    "torchvision",
    "timm",
    "numpy",
    "opencv-python-headless",
    "simplejpeg",
    "pillow",
)


def identity(job: Job, fingerprint: str, device: str, precision: str) -> dict[str, Any]:
    """What determines the result of `job`, up to rounding, as JSON values.

    `fingerprint`: of the shards. `device`: a kind such as `cpu`. `precision`: of the training; `auto` if
    its workers are not known yet.
    """
    checkpoint = job.recipe.backbone.checkpoint
    return {
        "recipe": job.recipe.model_dump(mode="json"),
        "seed": job.seed,
        "shards": fingerprint,
        "backbone": None if checkpoint is None else _checkpoint_digest(Path(job.root) / checkpoint),
        "code": job.code,
        **({} if job.images_per_pass is None else {"images_per_pass": job.images_per_pass}),
        "device": device,
        "precision": precision,
        "libraries": {name: importlib.metadata.version(name) for name in _LIBRARIES},
    }


def state_directory(job: Job, value: dict[str, Any]) -> Path | None:
    """The directory of the run that `value` identifies, or None if the job keeps no state."""
    if job.state is None:
        return None
    return Path(job.state) / job.dataset / job.method / f"{job.seed}-{digest(value)}"


def differences(before: Any, now: Any, name: str = "") -> list[str]:
    """The values in which two identities differ, as `recipe.dim (8, now 16)`; of a hash, only the name."""
    if isinstance(before, dict) and isinstance(now, dict):
        keys = sorted(before.keys() | now.keys())
        pairs = [(f"{name}.{key}" if name else key, before.get(key), now.get(key)) for key in keys]
        return [text for key, old, new in pairs for text in differences(old, new, key)]
    if before == now:
        return []
    return [name if name in _HASHES else f"{name} ({json.dumps(before)}, now {json.dumps(now)})"]


def other_states(directory: Path) -> list[Path]:
    """States of the same data set, method and seed with another identity."""
    seed = directory.name.partition("-")[0]
    return sorted(path for path in directory.parent.glob(f"{seed}-*") if path != directory)


def remove_states(directory: Path) -> None:
    """Removes the state of a finished run and those of other identities (same data set, method, seed).

    Each is renamed first: a state whose removal was interrupted must not be resumed.
    """
    for path in (directory, *other_states(directory)):
        if path.is_dir():
            path.replace(path.with_name(f".{path.name}.{uuid.uuid4().hex}.removed"))
    seed = directory.name.partition("-")[0]
    for path in directory.parent.glob(f".{seed}-*.removed"):
        shutil.rmtree(path, ignore_errors=True)


def _checkpoint_digest(path: Path) -> str:
    try:
        return sha256_of(path)
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror}.",
            "Correct the path in the recipe (backbone.checkpoint).",
        ) from None
