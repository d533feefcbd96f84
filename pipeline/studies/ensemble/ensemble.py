"""Runs the MLRC protocol: plans the members, trains the unfinished ones, scores the ensembles, writes the
outputs."""

import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from pipeline.cluster.connection import cluster_address
from pipeline.cluster.devices import device_here, gpus_here
from pipeline.config import EnsembleSettings, Recipe, TrainSettings
from pipeline.data.shards import Shards
from pipeline.runtime.errors import UserError
from pipeline.runtime.files import require_writable, write_json
from pipeline.studies.ensemble.ensemble_protocol import EnsembleProtocol
from pipeline.studies.ensemble.member_training import train_member
from pipeline.studies.ensemble.members import Member, check, plan, reuse_finished
from pipeline.studies.ensemble.outputs import score_ensembles, write_outputs
from pipeline.training.job import job_of


def ensemble(
    dataset: str,
    method: str,
    recipe: Recipe,
    settings: EnsembleSettings,
    machine: TrainSettings,
    root: Path,
    cores: int,
    code: str = "",
) -> dict[str, float | int | str]:
    """Trains the members of `method` on `dataset`, scores their ensembles, writes
    data/ensemble/<dataset>/<method>/ and the metrics, and returns the metrics.

    A killed run continues: finished members are kept, unfinished ones resume. Finished members in the outputs
    of an earlier run are reused if a new training would give the same bytes. Raises UserError before the
    first training if members cannot be trained or evaluated.
    """
    threads = machine.cpus_per_worker or (max(1, cores // settings.concurrent) if settings.concurrent else 1)
    base = job_of(
        dataset,
        method,
        settings.seed,
        recipe,
        root,
        threads=threads,
        loader_threads=machine.loader_threads,
        checkpoint_every=machine.checkpoint_every,
        images_per_pass=machine.images_per_pass,
        code=code,
    )
    shards = Shards(base.shards)
    check(base, settings, shards)
    state = base.root / "data/state/ensemble" / dataset / method
    output = base.root / "data/ensemble" / dataset / method
    metrics_file = base.root / "data/metrics" / dataset / method / "ensemble.json"
    require_writable(output.parent, metrics_file.parent, state)
    members = plan(base, settings, state, shards.fingerprint, machine.gpu)
    reuse_finished(members, output)
    _train(members, settings, machine, cores, state)
    classes = len(set(shards.labels[shards.rows("train")].tolist()))
    protocol = EnsembleProtocol(settings.folds, settings.repeats, tuple(sorted(set(settings.recall_at))))
    metrics, scores = score_ensembles(members, protocol)
    write_outputs(output, members, classes, protocol, metrics, scores)
    write_json(metrics_file, metrics)
    shutil.rmtree(state, ignore_errors=True)  # also the state of runs with other settings
    sys.stdout.write(summary(dataset, method, metrics))
    sys.stdout.flush()
    return metrics


def summary(dataset: str, method: str, metrics: dict[str, float | int | str]) -> str:
    """The result in three lines."""
    lines = [
        f"{method} on {dataset}: mean and deviation over {metrics['ensembles']} ensembles of "
        f"{metrics['members']} members"
    ]
    for kind in ("separated", "concatenated"):
        values = [
            f"{name} {metrics[f'{kind}_{name}']:.2%} ± {metrics[f'{kind}_{name}_std']:.2%}"
            for name in ("recall_at_1", "r_precision", "map_at_r")
        ]
        lines.append(f"  {kind} ({metrics[f'{kind}_dimensions']} dimensions): {', '.join(values)}")
    return "\n".join(lines) + "\n"


def _train(
    members: list[Member], settings: EnsembleSettings, machine: TrainSettings, cores: int, state: Path
) -> None:
    """Trains the unfinished members: sequentially in this process, or concurrently under Ray."""
    unfinished = [member for member in members if not member.finished]
    started = sum(member.iteration() > 0 for member in unfinished)
    finished = len(members) - len(unfinished)
    earlier = f", {finished} of them finished before, {started} resume" if finished or started else ""
    sys.stderr.write(
        f"ensemble: {len(members)} members, {settings.folds} folds x {settings.repeats} repeats{earlier}\n"
    )
    if not unfinished:
        return
    if cluster_address() is None:
        threads = members[0].job.threads
        concurrent = min(len(unfinished), concurrent_members(settings, machine, cores, threads))
        if concurrent == 1:
            _train_sequentially(members, device_here(machine.gpu))
            return
    else:
        concurrent = settings.concurrent or len(unfinished)
    # Ray takes seconds to import.
    from pipeline.studies.ensemble.concurrent_training import train_concurrently

    state.mkdir(parents=True, exist_ok=True)
    console = state / "console"
    console.unlink(missing_ok=True)
    train_concurrently(members, concurrent, settings.concurrent is not None, machine, console)


def concurrent_members(settings: EnsembleSettings, machine: TrainSettings, cores: int, threads: int) -> int:
    """The number of members that this machine trains at the same time: `ensemble.concurrent`, else one per
    GPU, else as many as its cores allow with `threads` each.

    Raises UserError if train.gpu or ensemble.concurrent needs more GPUs than the machine has.
    """
    gpus = gpus_here(machine.gpu)
    if gpus and settings.concurrent and settings.concurrent > gpus:
        raise UserError(
            f"ensemble.concurrent is {settings.concurrent}, but this machine has {gpus} GPU.",
            "Lower ensemble.concurrent, leave it null, or set train.gpu: no to train on CPUs.",
        )
    return settings.concurrent or gpus or max(1, cores // threads)


def _train_sequentially(members: Sequence[Member], device: torch.device) -> None:
    """Trains the unfinished members one after the other. Before each it prints the estimated remaining
    time."""
    unfinished = [member for member in members if not member.finished]
    begin = time.monotonic()
    for number, member in enumerate(unfinished):
        remaining = ""
        if number:
            seconds = (time.monotonic() - begin) / number * (len(unfinished) - number)
            time_left = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:,.0f} min"
            remaining = f", about {time_left} for all remaining members"
        position = members.index(member) + 1
        sys.stderr.write(
            f"{member.title}: member {position} of {len(members)}, seed {member.job.seed}, from step "
            f"{member.iteration()}{remaining}\n"
        )
        try:
            train_member(member, device)
        except UserError as error:
            title = f"{member.title[0].upper()}{member.title[1:]}"
            raise UserError(f"{title}: {error.what}", error.remedy) from error
