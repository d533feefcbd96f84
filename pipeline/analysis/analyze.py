"""Every run of the matrix in one table: density, spectrum, PCA, similarities, train-test gap and, where a network gives attributes, their transfer to
other classes; each beside that of the untrained network."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from pipeline.analysis.density import embedding_density
from pipeline.analysis.gap import METRICS, retrieved, train_test_gap
from pipeline.analysis.similarity import Histogram, similarities
from pipeline.analysis.spectrum import MODES, decay_modes, dims_for, pca_energy, spectrum
from pipeline.analysis.transfer import LEAST_CLASSES, attribute_transfer
from pipeline.data.embeddings import Embeddings, read
from pipeline.runtime.digest import sha256_of
from pipeline.runtime.progress import track

DIGITS = 6  # significant; the last bits of a sum depend on the number of BLAS threads, and bytes must not
SHOWN_CLASSES = 10  # of the attribute shares, as many as GSP fig. 5 shows
COLUMNS = (
    "dataset", "method", "seed", "network", "images", "classes", "dim",
    "embedding_density", "density_intra", "density_inter", *MODES, "floored_singular_values", "pca_dims_90",
    "positive_similarity", "negative_similarity", "similarity_overlap",
    "train_embedding_density", "train_spectral_decay", "train_spectral_decay_reversed",
    "train_positive_similarity", "train_negative_similarity", "train_similarity_overlap",
    "transfer_map_l2", "transfer_map_l2_std", "transfer_map_cosine", "transfer_map_cosine_std", "transfer_map_chance", "transfer_classes",
    *(f"{side}_{name}" for side in ("train", "test") for name in METRICS), *(f"{name}_gap" for name in METRICS),
)  # fmt: skip
# What the labels of test images decide. Those of a landmark set name benchmarks, not things: there these measures mean nothing and are left out.
_BY_TEST_LABEL = ("embedding_density", "density_", "positive_", "negative_", "similarity_", "transfer_", "test_", "classes")


@dataclass(frozen=True)
class Run:
    """One row of the table and the curves that belong to it."""

    row: dict[str, Any]
    curves: dict[str, Any]
    files: dict[str, str]  # sha256 of the embedding files behind them


def analyze(
    root: Path,
    runs: Iterable[tuple[str, str, int]],
    bins: int,
    pairs: int,
    transfer_splits: int,
    transfer_classes: int,
    transfer_ridge: float,
) -> list[Run]:
    """Reads `root`/<dataset>/<method>/<seed>/{train,test,test-untrained}.arrow of each (dataset, method, seed).

    Gives one Run of the selected network and one of the untrained one, in that order. Raises UserError for a file that is missing.
    """
    result = []
    for dataset, method, seed in track(list(runs), "analyze", "models"):
        folder = root / dataset / method / str(seed)
        for network, name in (("selected", "test"), ("untrained", "test-untrained")):
            who = {"dataset": dataset, "method": method, "seed": seed, "network": network}
            test = read(folder / f"{name}.arrow")
            row, curves = _unseen(test, bins, pairs)
            if network == "selected":
                train = read(folder / "train.arrow")
                row |= train_test_gap((train.embedding, train.label), (test.embedding, test.label))
                _seen(train, bins, pairs, row, curves)
            else:
                row |= retrieved("test", test.embedding, test.label)
            if test.attributes is not None:  # of methods that pool by prototypes
                _transfer(test.attributes, test, transfer_splits, transfer_classes, transfer_ridge, row, curves)
            if (folder / "ground_truth.parquet").is_file():
                row = {measure: value for measure, value in row.items() if not measure.startswith(_BY_TEST_LABEL) and not measure.endswith("_gap")}
            files = ("test", "train", "test-last") if network == "selected" else (name,)
            digests = {file: sha256_of(folder / f"{file}.arrow") for file in files if (folder / f"{file}.arrow").is_file()}
            result.append(Run({column: rounded((who | row).get(column)) for column in COLUMNS}, who | curves, digests))
    return result


def _unseen(test: Embeddings, bins: int, pairs: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the embeddings of test classes are like: numbers, curves."""
    density, values = embedding_density(test.embedding, test.label), spectrum(test.embedding)
    energy, cosine = pca_energy(test.embedding), similarities(test.embedding, test.label, bins, pairs)
    row = {
        "images": len(test.label),
        "classes": density.classes,
        "dim": test.embedding.shape[1],
        "embedding_density": density.ratio,
        "density_intra": density.intra,
        "density_inter": density.inter,
        **decay_modes(values.values),
        "floored_singular_values": values.floored,
        "pca_dims_90": dims_for(energy),
        "positive_similarity": cosine.positive.mean,
        "negative_similarity": cosine.negative.mean,
        "similarity_overlap": cosine.overlap,
    }
    curves = {
        "spectrum": _rounded_list(values.values),
        "pca_energy": _rounded_list(energy),
        "edges": _rounded_list(cosine.edges),
        "positive": _histogram(cosine.positive),
        "negative": _histogram(cosine.negative),
    }
    return row, curves


def _seen(train: Embeddings, bins: int, pairs: int, row: dict[str, Any], curves: dict[str, Any]) -> None:
    """Adds the same of training classes, as far as a comparison takes it."""
    decay, cosine = decay_modes(spectrum(train.embedding).values), similarities(train.embedding, train.label, bins, pairs)
    row |= {f"train_{name}": decay[name] for name in ("spectral_decay", "spectral_decay_reversed")}
    row["train_embedding_density"] = embedding_density(train.embedding, train.label).ratio
    row["train_positive_similarity"], row["train_negative_similarity"] = cosine.positive.mean, cosine.negative.mean
    row["train_similarity_overlap"] = cosine.overlap
    curves["train_positive"], curves["train_negative"] = _histogram(cosine.positive), _histogram(cosine.negative)


def _transfer(
    attributes: Float[np.ndarray, "N M"],
    test: Embeddings,
    splits: int,
    classes: int,
    ridge: float,
    row: dict[str, Any],
    curves: dict[str, Any],
) -> None:
    """Adds what attributes of some test classes tell of others; nothing where there are too few classes to divide."""
    names = np.unique(test.label)
    curves["attributes"] = {
        "labels": names[:SHOWN_CLASSES].tolist(),
        "share": [_rounded_list(attributes[test.label == name].mean(0, dtype=np.float64)) for name in names[:SHOWN_CLASSES]],
    }
    if len(names) >= LEAST_CLASSES:
        found = attribute_transfer(attributes, test.embedding, test.label, splits, ridge, classes, title="analyze: transfer of attributes")
        row |= {"transfer_map_l2": found.l2, "transfer_map_l2_std": found.l2_std, "transfer_classes": found.classes}
        row |= {"transfer_map_cosine": found.cosine, "transfer_map_cosine_std": found.cosine_std, "transfer_map_chance": found.chance}


def numbers(runs: Iterable[Run]) -> dict[str, Any]:
    """{dataset: {method: {seed: {measure: number}}}} of the trained networks, as `dvc metrics` reads it. What is undefined is left out."""
    tree: dict[str, Any] = {}
    for run in runs:
        row = run.row
        if row["network"] == "selected":
            leaf = tree.setdefault(row["dataset"], {}).setdefault(row["method"], {}).setdefault(str(row["seed"]), {})
            leaf.update({name: row[name] for name in COLUMNS[4:] if row[name] is not None})
    return tree


def rounded(value: Any) -> Any:
    """`value` to DIGITS significant digits; None for what is not a finite number."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def _rounded_list(values: np.ndarray) -> list[float]:
    return [rounded(float(value)) for value in values]


def _histogram(histogram: Histogram) -> dict[str, Any]:
    return {
        "share": _rounded_list(histogram.share),
        "mean": rounded(histogram.mean),
        "std": rounded(histogram.std),
        "pairs": histogram.pairs,
        "of": histogram.of,
    }
