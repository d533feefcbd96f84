"""The protocol from its settings to its outs: plan the members, finish those that are missing, judge the
ensembles, write."""

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
from pipeline.runtime.files import write_json
from pipeline.studies.ensemble.ensemble_protocol import EnsembleProtocol
from pipeline.studies.ensemble.members import Member, adopt, check, plan
from pipeline.studies.ensemble.outputs import judge, write_outs
from pipeline.studies.ensemble.work import work
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
    """Trains the members of `method` on `dataset`, judges their ensembles, writes
    data/ensemble/<dataset>/<method>/ and the metrics; returns these.

    A killed run goes on: finished members are kept, started ones resume. Finished members are also taken over
    from the outs of an earlier run where they would be trained to the same bytes. Raises UserError before
    anything starts for what cannot be trained or judged.
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
        code=code,
    )
    shards = Shards(base.shards)
    check(base, settings, shards)
    state, output = (
        base.root / "data/state/ensemble" / dataset / method,
        base.root / "data/ensemble" / dataset / method,
    )
    members = plan(base, settings, state, shards.fingerprint, machine.gpu)
    adopt(members, output)
    _train(members, settings, machine, cores, state)
    classes = len(set(shards.labels[shards.rows("train")].tolist()))
    protocol = EnsembleProtocol(settings.folds, settings.repeats, tuple(sorted(set(settings.recall_at))))
    metrics, found = judge(members, protocol)
    write_outs(output, members, classes, protocol, metrics, found)
    write_json(base.root / "data/metrics" / dataset / method / "ensemble.json", metrics)
    shutil.rmtree(state, ignore_errors=True)  # with what other settings left behind
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
    """Finishes the members that are not: one after the other in this process, or side by side under Ray."""
    todo = [member for member in members if not member.finished]
    started = sum(member.iteration() > 0 for member in todo)
    before = (
        f", {len(members) - len(todo)} of them finished before, {started} to go on with"
        if len(todo) < len(members) or started
        else ""
    )
    sys.stderr.write(
        f"ensemble: {len(members)} members, {settings.folds} folds x {settings.repeats} repeats{before}\n"
    )
    if not todo:
        return
    if cluster_address() is None:
        concurrent = min(len(todo), abreast(settings, machine, cores, members[0].job.threads))
        if concurrent == 1:
            _one_by_one(members, device_here(machine.gpu))
            return
    else:
        concurrent = settings.concurrent or len(todo)
    from pipeline.studies.ensemble.side_by_side import train_side_by_side  # Ray takes seconds to import

    state.mkdir(parents=True, exist_ok=True)
    console = state / "console"
    console.unlink(missing_ok=True)
    train_side_by_side(members, concurrent, settings.concurrent is not None, machine, console)


def abreast(settings: EnsembleSettings, machine: TrainSettings, cores: int, threads: int) -> int:
    """Members that this machine trains at once: `ensemble.concurrent`, else one per GPU, else as many as its
    cores hold at `threads` each.

    Raises UserError where train.gpu asks for more GPUs than there are.
    """
    gpus = gpus_here(machine.gpu)
    if gpus and settings.concurrent and settings.concurrent > gpus:
        raise UserError(
            f"ensemble.concurrent is {settings.concurrent}, and this machine has {gpus} GPU.",
            "Lower ensemble.concurrent, leave it null, or set train.gpu: no to train on CPUs.",
        )
    return settings.concurrent or gpus or max(1, cores // threads)


def _one_by_one(members: Sequence[Member], device: torch.device) -> None:
    """Each training shows its own progress; between two of them stands what is left."""
    todo = [member for member in members if not member.finished]
    begin = time.monotonic()
    for number, member in enumerate(todo):
        left = (time.monotonic() - begin) / number * (len(todo) - number) if number else None
        eta = (
            ""
            if left is None
            else f", about {left:.0f} s for this and what follows"
            if left < 120
            else f", about {left / 60:,.0f} min for this and what follows"
        )
        at = members.index(member) + 1
        sys.stderr.write(
            f"{member.title}: member {at} of {len(members)}, seed {member.job.seed}, from step "
            f"{member.iteration()}{eta}\n"
        )
        try:
            work(member, device)
        except UserError as error:
            raise UserError(
                f"{member.title[0].upper()}{member.title[1:]}: {error.what}", error.remedy
            ) from error
