"""Hashes of the files behind each number, the resolved recipes, the protocol of the evaluation."""

import hashlib
import importlib.metadata
import json
import platform
from contextlib import suppress
from typing import Any

from unseen.config.layers import flat
from unseen.report.dataset import DataSet, MethodStyle
from unseen.report.recipes import changes_of, text
from unseen.report.report_data import ReportData, RunResults
from unseen.runtime.digest import sha256_of

COLUMNS = ("shards", "recipe", "weights", "test embeddings", "protocol")  # of the table
LIBRARIES = (
    "unseen", "torch", "timm", "ray", "faiss-cpu", "faiss-gpu", "numpy", "scipy", "pyarrow",
    "opencv-python-headless", "simplejpeg", "pillow", "matplotlib",
)  # fmt: skip


def content(dataset: DataSet) -> dict[str, Any]:
    hashes = [(run, hashes_of(dataset.report_data, run)) for run in dataset.runs()]
    columns = [name for name in hashes[0][1] if name in COLUMNS]
    first = {run.method: (run, digests) for run, digests in reversed(hashes)}  # the first seed of each method
    return {
        "origin": origin_of(dataset),
        "columns": columns,
        "rows": [
            {
                "name": f"{run.method}, seed {run.seed}" if dataset.seeds > 1 else run.method,
                "digests": [digests[name] for name in columns],
            }
            for run, digests in hashes
        ],
        "protocols": len({digests["protocol"] for _, digests in hashes}),
        "recipes": [_recipe(dataset, method, *first[method.name]) for method in dataset.methods],
        "protocol": [
            (key.replace("_", " "), text(value)) for key, value in dataset.runs()[0].protocol.items()
        ],
    }


def origin_of(dataset: DataSet) -> list[tuple[str, str]]:
    """Commit and date of the code, and the machines of the trainings."""
    revision = dataset.report_data.revision
    facts = []
    if revision is None:
        facts.append(("commit", "unknown: no git repository"))
    else:
        changes = ", with changes that are not committed" if revision.is_modified else ""
        facts += [("commit", f"{revision.commit}{changes}"), ("date of the commit", revision.date)]
    runs = dataset.runs()
    machines = [(_machine(run.host), run) for run in runs]
    for machine in dict.fromkeys(name for name, _ in machines):
        trained = [run for name, run in machines if name == machine]
        runs_of = f"{len(trained)} of {len(runs)} trainings: " if len(trained) < len(runs) else ""
        facts.append(("trained on", f"{runs_of}{machine}"))
    return facts


def _machine(host: dict[str, Any] | None) -> str:
    if host is None:
        return "unknown: data/logs has no log"
    return f"{host['device']}, {host['cores']} cores, {host['system']}, Python {host['python']}"


def _recipe(
    dataset: DataSet, method: MethodStyle, run: RunResults, digests: dict[str, str]
) -> dict[str, Any]:
    settings = [(key, text(value)) for key, value in flat(run.recipe.get("recipe", run.recipe)).items()]
    half = (len(settings) + 1) // 2
    backbone = dict(settings).get("backbone.name", "")
    iterations = dict(settings).get("training.iterations", "")
    notes = [f"like {method.like}"] if method.like else []
    key = dataset.report_data.keys.get(method.name)
    if key and key != method.like:
        notes.insert(0, f"{key} in run.methods")
    if backbone and iterations:
        notes.append(f"{backbone}, {iterations} iterations")
    changes = changes_of(dataset.report_data, dataset.name, method.name) or []
    return {
        "method": method,
        "note": ", ".join(notes),
        "changes": [(key, f"{value} ({method.like}: {other})") for key, value, other in changes],
        "left": settings[:half],
        "right": settings[half:],
        "hashes": list(digests.items()),
    }


def hashes_of(report_data: ReportData, run: RunResults) -> dict[str, str]:
    """The hashes behind the numbers of one run, from image bytes to protocol, in the order of their
    dependence.
    """
    entries = report_data.analysed(run.dataset, run.method)
    files: dict[str, str] = next((e["files"] for e in entries if e["row"]["seed"] == run.seed), {})
    return {
        "shards": report_data.shards[run.dataset].fingerprint,
        "recipe": sha256_of_value(run.recipe),
        "weights": sha256_of(run.weights["weights"]),
        "last weights": sha256_of(run.weights["last"]),
        **{f"{name} embeddings": digest for name, digest in files.items()},
        "protocol": str(run.metrics["protocol"]),
    }


def sha256_of_value(value: Any) -> str:
    """Of its canonical JSON."""
    return hashlib.sha256(
        json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    ).hexdigest()


def versions() -> dict[str, str]:
    """The installed versions of Python and LIBRARIES. One of the two builds of FAISS is installed."""
    installed = {"python": platform.python_version()}
    for name in LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            installed[name] = importlib.metadata.version(name)
    return installed
