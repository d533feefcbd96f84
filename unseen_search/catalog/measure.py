"""Which mean, standard deviation and padding weights need: measured on labelled photos.

The statistics of the training of a file of weights are part of it, and the file does not contain them. Each
candidate embeds the same photos; the retrieval accuracy shows which one fits.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from unseen.evaluation.external import Metrics, evaluate_vectors
from unseen.frozen.embedder import Embedder
from unseen.frozen.labels import FOLDERS, labelled
from unseen.frozen.network import Network, candidates
from unseen.networks.published_network import accepts_padding
from unseen.runtime.errors import UserError

PHOTOS = 600  # classes are drawn until they have this many photos
PER_CLASS = 10  # photos at most, so that many classes are compared


class Measured(NamedTuple):
    """A candidate and its accuracy on the photos."""

    network: Network
    metrics: Metrics

    @property
    def map_at_r(self) -> float:
        return float(self.metrics["map_at_r"])


def measure(photos: Path, network: Network, labels: str = FOLDERS, limit: int = PHOTOS) -> list[Measured]:
    """The accuracy of `network` with each candidate of its statistics and padding, best MAP@R first.

    `labels`: folders, or the path of a CSV (labels.py). Raises UserError if the photos have too few labels,
    and as `Embedder` does.
    """
    pictures, label_of = labelled(photos, labels)
    chosen = _drawn(dict(zip(pictures.paths, label_of, strict=True)), limit)
    files = [photos / path for path in chosen]
    measured = []
    for candidate in _candidates(network):
        vectors = Embedder(candidate)(files, f"measure {description(candidate)}")
        metrics = evaluate_vectors(vectors, list(chosen.values()), recall_at=(1,), progress=True)
        measured.append(Measured(candidate, metrics))
    return sorted(measured, key=lambda result: -result.map_at_r)


def description(network: Network) -> str:
    """The options of `unseen index` that select the statistics and the arguments of a network."""
    arguments = [f"--argument {key}={value}" for key, value in network.arguments.items()]
    return " ".join([f"--statistics {network.statistics}", *arguments])


def _candidates(network: Network) -> Iterator[Network]:
    padded = [network]
    if accepts_padding(network.name) and "pad_type" not in network.arguments:
        padded.append(replace(network, arguments={**network.arguments, "pad_type": "same"}))
    for candidate in padded:
        for statistics in candidates(network.name):
            yield replace(candidate, statistics=statistics)


def _drawn(labels: dict[str, str], limit: int) -> dict[str, str]:
    """The first photos of randomly drawn labels."""
    of_label: dict[str, list[str]] = {}
    for path, label in labels.items():
        of_label.setdefault(label, []).append(path)
    if len(of_label) < 2:
        raise UserError(
            f"The photos have {len(of_label)} labels; a comparison needs two or more.",
            "Put the photos of each class into its folder, or name a CSV with --labels.",
        )
    chosen: dict[str, str] = {}
    for label in np.random.default_rng(0).permutation(sorted(of_label)).tolist():
        if len(chosen) >= limit:
            break
        chosen |= dict.fromkeys(of_label[label][:PER_CLASS], label)
    return chosen
