"""The material of heads on frozen networks: photos, class-disjoint splits, maps of each network."""

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unseen.data.splits import grouped
from unseen.experiments.claims.arm import Material
from unseen.experiments.claims.claim import NetworkOfClaims
from unseen.frozen.labels import FOLDERS, labels_of
from unseen.frozen.maps import Trunk, maps_of, trunk
from unseen.frozen.network import Network
from unseen.frozen.pictures import listed
from unseen.networks import lite0
from unseen.runtime.errors import UserError

STAGES = (-2, -1)  # the maps that are cached: Multi-Head reads both
MAPS, MODELS, RECORDS = "maps", "networks", "records"  # in the output directory
LITE0 = "lite0"  # its weights are in an installed package


@dataclass(frozen=True)
class Plan:
    """What to compute. names: of claims or studies. weights: file of each network by its name in
    claims.yaml. groups: group of each class, for a second split. at_most: photos of a class. download: other
    networks may be downloaded."""

    photos: Path
    output: Path
    names: tuple[str, ...]
    weights: Mapping[str, Path]
    groups: Mapping[str, str] | None = None
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    at_most: int = 40
    download: bool = False


@dataclass(frozen=True)
class Photos:
    """The photos of the claims, those of a class in the order of their sha256."""

    paths: list[Path]
    sha256: list[str]
    labels: list[str]

    @property
    def digest(self) -> str:
        content = sorted(zip(self.labels, self.sha256, strict=True))
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


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
            sys.stderr.write(f"claims: no weights of {name}: its comparisons are left out\n")
    if not networks:
        raise UserError(
            "The weights of no network of these claims are available.",
            "Name files with --weights NETWORK=FILE, install `unseen[lite0]`, or set --download.",
        )
    return networks


def photos_of(plan: Plan) -> Photos:
    pictures = listed(plan.photos)
    if pictures.damaged:
        name, reason = next(iter(pictures.damaged.items()))
        raise UserError(f"{plan.photos / name} cannot be read: {reason}.", "Repair or remove it.")
    by_class: dict[str, list[tuple[str, Path]]] = {}
    for path, digest, label in zip(
        pictures.paths, pictures.sha256, labels_of(FOLDERS, pictures.paths), strict=True
    ):
        if label is not None:
            by_class.setdefault(label, []).append((digest, plan.photos / path))
    rows = [
        (path, digest, label)
        for label, members in sorted(by_class.items())
        for digest, path in sorted(dict(sorted(members)).items())[: plan.at_most]
    ]
    return Photos([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])


def splits_of(photos: Photos, plan: Plan) -> dict[str, frozenset[str]]:
    """The test classes of each split: half of the classes at random, and half of the groups."""
    splits = {"random": grouped(photos.labels, 0.5, 1, 0).test}
    if plan.groups is not None:
        splits["groups"] = grouped(photos.labels, 0.5, 1, 0, plan.groups).test
    return splits


def material_of(
    name: str,
    network: Network,
    photos: Photos,
    names: tuple[str, ...],
    splits: Mapping[str, frozenset[str]],
    plan: Plan,
) -> dict[str, Material]:
    frozen: Trunk = trunk(network, plan.output / MODELS / name, STAGES)
    maps = maps_of(photos.paths, photos.sha256, frozen, plan.output / MAPS, f"claims: maps of {name}")
    labels = np.array([names.index(label) for label in photos.labels], np.int64)
    return {kind: Material(frozen, maps, names, labels, photos.digest, test) for kind, test in splits.items()}
