"""One member from its job to its test embeddings: a training on one worker, then the export of the weights
that its fold selected.

Either part is found done after a kill, and a training that was killed goes on from its newest checkpoint.
"""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import torch

from pipeline.data.embeddings import check, write
from pipeline.data.loader import EvalLoader
from pipeline.data.shards import Shards
from pipeline.export.model import embed_rows
from pipeline.methods.artifact import load_method
from pipeline.runtime.digest import sha256_of
from pipeline.runtime.files import atomic_directory, write_json
from pipeline.studies.ensemble.members import EMBEDDINGS, HISTORY, RECORD, Member
from pipeline.training.embed import BATCH
from pipeline.training.job import Outputs
from pipeline.training.loop import Report, train
from pipeline.training.reproducible import reproducible


def work(member: Member, device: torch.device, report: Report | None = None) -> None:
    """Leaves `member.done`: test.arrow (float32 embeddings of the test images), history.csv, member.json.
    Raises what training and export raise."""
    job, outputs = member.job, member.job.outputs
    assert outputs is not None
    if not member.trained:
        train(job, 0, 1, device, report)
    shards = Shards(job.shards)
    rows = shards.rows("test")
    with atomic_directory(member.done) as aside:
        with reproducible(device, job.threads):
            loaded = load_method(outputs.model)
            loader = EvalLoader(shards, rows, loaded.recipe.input, BATCH, job.loader_threads)
            found = embed_rows(loaded.method, loader, device, f"export {job.name}").embedding
        check(f"{job.dataset}, {job.method}, {member.title}", rows, found)
        write(
            aside / EMBEDDINGS,
            rows,
            shards.labels[rows],
            found,
            shards.is_query[rows],
            shards.is_gallery[rows],
        )
        shutil.copyfile(outputs.history, aside / HISTORY)
        write_json(aside / RECORD, _record(member, outputs, aside / EMBEDDINGS))
    shutil.rmtree(outputs.model)  # a dozen networks are not kept


def _record(member: Member, outputs: Outputs, embeddings: Path) -> dict[str, Any]:
    """What the outs say of a member beside its test metrics: where it stopped, and what it was selected
    by."""
    log, metric = (
        json.loads(outputs.log.read_text(encoding="utf-8")),
        member.job.resolved().training.selection_metric,
    )
    with open(outputs.history, newline="", encoding="utf-8") as file:
        selected = next(row for row in csv.DictReader(file) if int(row["iteration"]) == log["best_iteration"])
    return {
        "model": member.model,
        "repeat": member.repeat,
        "seed": member.job.seed,
        "iterations": log["iterations"],
        "best_iteration": log["best_iteration"],
        f"validation_{metric}": float(selected[metric]),
        "identity": member.identity,
        "sha256": sha256_of(embeddings),
    }
