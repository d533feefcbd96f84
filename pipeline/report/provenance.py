"""Where each number comes from: the hashes of shards, recipe, weights, embeddings and protocol behind it, and the versions that computed it."""

import hashlib
import importlib.metadata
import json
import platform
from contextlib import suppress
from typing import Any

from pipeline.report.inputs import Inputs, Run
from pipeline.runtime.digest import sha256_of

LIBRARIES = (
    "unseen", "torch", "timm", "ray", "faiss-cpu", "faiss-gpu", "numpy", "scipy", "pyarrow", "opencv-python-headless", "simplejpeg", "pillow",
    "matplotlib",
)  # fmt: skip


def sha256_of_value(value: Any) -> str:
    """Of its canonical JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()


def chain(inputs: Inputs, run: Run) -> dict[str, str]:
    """The hashes from image bytes to number of one run, in the order in which they depend on each other."""
    files: dict[str, str] = next((entry["files"] for entry in inputs.analysis if _is(entry["row"], run, "selected")), {})
    return {
        "shards": inputs.shards[run.dataset].fingerprint,
        "recipe": sha256_of_value(run.recipe),
        "weights": sha256_of(run.weights["weights"]),
        "last weights": sha256_of(run.weights["last"]),
        **{f"{name} embeddings": digest for name, digest in files.items()},
        "protocol": str(run.metrics["protocol"]),
    }


def versions() -> dict[str, str]:
    """Installed versions of what decides a number; of the two builds of FAISS one is there."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _is(row: dict[str, Any], run: Run, network: str) -> bool:
    return (row["dataset"], row["method"], row["seed"], row["network"]) == (run.dataset, run.method, run.seed, network)
