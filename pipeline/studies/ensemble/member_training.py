"""Trains one member on one worker, then embeds the test images with the weights that its fold selected.

After a kill, a finished training is not repeated, and an unfinished one resumes from its newest checkpoint.
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


def train_member(member: Member, device: torch.device, report: Report | None = None) -> None:
    """Writes `member.done`: test.arrow (float32 embeddings of the test images), history.csv, member.json.
    Raises the exceptions of training and export."""
    job, outputs = member.job, member.job.outputs
    assert outputs is not None
    if not member.trained:
        train(job, 0, 1, device, report)
    shards = Shards(job.shards)
    rows = shards.rows("test")
    with atomic_directory(member.done) as directory:
        with reproducible(device, job.threads):
            loaded = load_method(outputs.model)
            loader = EvalLoader(shards, rows, loaded.recipe.input, BATCH, job.loader_threads)
            embeddings = embed_rows(loaded.method, loader, device, f"export {job.name}").embedding
        check(f"{job.dataset}, {job.method}, {member.title}", rows, embeddings)
        sides = shards.is_query[rows], shards.is_gallery[rows]
        write(directory / EMBEDDINGS, rows, shards.labels[rows], embeddings, *sides)
        shutil.copyfile(outputs.history, directory / HISTORY)
        write_json(directory / RECORD, _record(member, outputs, directory / EMBEDDINGS))
    shutil.rmtree(outputs.model)  # the networks of all members would need much space


def _record(member: Member, outputs: Outputs, embeddings: Path) -> dict[str, Any]:
    """The record of a member: its last and its selected iteration, the validation metric of the latter, and
    its digests."""
    log = json.loads(outputs.log.read_text(encoding="utf-8"))
    metric = member.job.resolved().training.selection_metric
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
