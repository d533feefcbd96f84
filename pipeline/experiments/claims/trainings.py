"""The trainings of claims and of studies: each head on each network and split, with each seed."""

import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from unseen.evaluation.record import Record
from unseen.experiments.claims.arm import average, floor, record
from unseen.experiments.claims.claim import OF_CLASSES
from unseen.experiments.claims.material import RECORDS, Plan, material_of, photos_of, splits_of
from unseen.frozen.network import Network
from unseen.runtime.progress import Progress

Arm = tuple[str, dict[str, Any]]  # a published method, and its changes by dotted field


class Trainings(NamedTuple):
    """The records, and the fields that the results of claims and those of studies share."""

    records: dict[tuple[str, str, str, int], Record]  # by network, arm, split and seed
    splits: list[str]
    fields: dict[str, Any]


def train(
    title: str, arms: Mapping[str, Mapping[str, Arm]], networks: Mapping[str, Network], plan: Plan
) -> Trainings:
    """Trains the arms of each network, or reads their records in OUTPUT/records. `title` is that of the
    progress line.

    Raises UserError for photos that cannot be read, and for too few classes.
    """
    photos = photos_of(plan)
    splits = splits_of(photos, plan)
    names = tuple(sorted(set(photos.labels)))
    torch.set_num_threads(1)  # sums of several threads round differently
    plan.output.mkdir(parents=True, exist_ok=True)
    total = sum(map(len, arms.values())) * len(splits) * len(plan.seeds)
    records: dict[tuple[str, str, str, int], Record] = {}
    floors: list[dict[str, Any]] = []
    begin = time.process_time()
    with Progress(title, total, "trainings") as progress:
        for network, of_network in arms.items():
            material = material_of(network, networks[network], photos, names, splits, plan)
            for kind, of_split in material.items():
                values = floor(plan.output / RECORDS, of_split)
                numbers = {metric: round(average(values, metric), 5) for metric in OF_CLASSES}
                floors.append({"network": network, "split": kind, **numbers})
            for arm, (method, changes) in of_network.items():
                for kind, of_split in material.items():
                    for seed in plan.seeds:
                        key = network, arm, kind, seed
                        records[key], is_trained = record(
                            plan.output / RECORDS, method, changes, of_split, seed
                        )
                        progress.note = f"{network} {arm} {kind}"
                        if is_trained:
                            progress.advance()
                        else:
                            progress.skip()
    sys.stderr.write(f"{title}: {time.process_time() - begin:.0f} CPU seconds in this run\n")
    fields = {
        "data": plan.photos.resolve().name,
        "photos": len(photos.paths),
        "classes": len(names),
        "test_classes": {kind: len(test) for kind, test in splits.items()},
        "seeds": len(plan.seeds),
        "floors": floors,
        "cpu_seconds": round(sum(each.cpu_seconds for each in records.values())),
    }
    return Trainings(records, list(splits), fields)
