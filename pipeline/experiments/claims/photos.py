"""Heads on frozen networks with the photos of a folder: what claims compute."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from unseen.data.splits import grouped
from unseen.evaluation.record import FLOOR, Record, Run
from unseen.experiments.claims.claim import NetworkOfClaims
from unseen.experiments.claims.results import floor_of
from unseen.experiments.experiment import Experiment, Store, grid, records
from unseen.frozen.head_runner import Head, HeadRunner, photos_of
from unseen.frozen.network import Network
from unseen.networks import lite0
from unseen.runtime.errors import UserError
from unseen.runtime.names import say

RECORDS = "records"  # in the output directory
LITE0 = "lite0"  # its weights are in an installed package


@dataclass(frozen=True)
class Plan:
    """What to compute. names: of claims. weights: file of each network by its name in
    claims.yaml. groups: group of each class, for a second split. at_most: photos of a class. download: other
    networks may be downloaded."""

    photos: tuple[Path, ...]  # folders; heads take one
    output: Path
    names: tuple[str, ...]
    weights: Mapping[str, Path]
    groups: Mapping[str, str] | None = None
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    at_most: int = 40
    download: bool = False


class OnPhotos(NamedTuple):
    """The records, the splits, and the fields of the results that do not depend on a claim."""

    records: dict[Run, Record]
    splits: list[str]
    fields: dict[str, Any]

    def places(self, networks: Iterable[str]) -> list[str]:
        """Each of these networks on each split."""
        return [f"{network}/{split}" for network in networks for split in self.splits]


def available(known: Mapping[str, NetworkOfClaims], names: Iterable[str], plan: Plan) -> dict[str, Network]:
    """The networks of `names` whose weights are available."""
    if unknown := plan.weights.keys() - known.keys():
        raise UserError(
            f"--weights: no claim has a network {min(unknown)}.", f"Known are: {', '.join(known)}."
        )
    networks = {}
    for name in dict.fromkeys(names):
        about, file = known[name], plan.weights.get(name)
        is_installed = name == LITE0 and lite0.installed() is not None
        if file is not None or is_installed or plan.download:
            statistics = about.statistics if file is not None else None
            networks[name] = Network(about.name, file, about.size, statistics, dict(about.arguments))
        else:
            say(f"claims: no weights of {name}: its comparisons are left out")
    if not networks:
        raise UserError(
            "The weights of no network of these claims are available.",
            "Name files with --weights NETWORK=FILE, install `unseen[lite0]`, or set --download.",
        )
    return networks


def computed(
    heads: Mapping[str, Mapping[str, Head]], networks: Mapping[str, Network], plan: Plan
) -> OnPhotos:
    """Trains the heads of each network, or reads their records in OUTPUT/records.

    The splits are half of the classes at random, and half of the groups. Raises UserError for photos that
    cannot be read, and for too few classes.
    """
    (folder,) = plan.photos
    photos = photos_of(folder, plan.at_most)
    tests = {"random": grouped(photos.labels, 0.5, 1, 0).test}
    if plan.groups is not None:
        tests["groups"] = grouped(photos.labels, 0.5, 1, 0, plan.groups).test
    all_heads = {row: head for of_network in heads.values() for row, head in of_network.items()}
    runner = HeadRunner(all_heads, networks, photos, tests, plan.output)
    floors = grid([FLOOR], [f"{network}/{split}" for network in heads for split in tests], [0])
    trainings = tuple(
        run
        for network, rows in heads.items()
        for run in grid(list(rows), [f"{network}/{split}" for split in tests], plan.seeds)
    )
    values = records(Experiment("claims", floors + trainings), runner, Store(plan.output / RECORDS))
    fields = {
        "data": folder.resolve().name,
        "photos": len(photos.paths),
        "classes": len(set(photos.labels)),
        "test_classes": {split: len(test) for split, test in tests.items()},
        "seeds": len(plan.seeds),
        "floors": [floor_of(run.place, values[run]) for run in floors],
        "cpu_seconds": round(sum(values[run].cpu_seconds for run in trainings)),
    }
    return OnPhotos(values, list(tests), fields)
