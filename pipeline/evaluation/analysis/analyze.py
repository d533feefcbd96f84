"""The analysis of a run: density, spectrum, PCA, similarities, errors of a threshold, train-test gap, and
transfer of attributes.

A run has a row for the selected network and a row for the untrained network. Attributes exist only for
methods that pool by prototypes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float
from threadpoolctl import threadpool_limits

from unseen.data.embeddings import Embeddings, read
from unseen.evaluation.analysis.density import embedding_density
from unseen.evaluation.analysis.embedding_map import embedding_map
from unseen.evaluation.analysis.gap import METRICS, retrieved, train_test_gap
from unseen.evaluation.analysis.ground_truth import benchmark_similarities
from unseen.evaluation.analysis.plain import plain_histogram, rounded, rounded_list
from unseen.evaluation.analysis.similarity import Similarities, similarities
from unseen.evaluation.analysis.spectrum import MODES, decay_modes, dims_for, pca_energy, spectrum
from unseen.evaluation.analysis.transfer import LEAST_CLASSES, attribute_transfer
from unseen.evaluation.analysis.verification import RATES, Intervals, operating_points
from unseen.evaluation.reduction import Reduction, apply, learned_reduction
from unseen.evaluation.settings import AnalyzeSettings
from unseen.runtime.digest import sha256_of

HEADLINE = ("embedding_density", "spectral_decay", "transfer_map_l2")  # in the metrics file
ATTRIBUTE_CLASSES = 10  # classes whose attribute shares are written, as many as in GSP fig. 5
FNMR = {rate: f"fnmr_at_fmr_{rate:g}" for rate in RATES}  # columns of verification.py
COLUMNS = (
    "dataset", "method", "seed", "network", "images", "classes", "dim",
    "embedding_density", "density_intra", "density_inter", *MODES, "floored_singular_values", "pca_dims_90",
    "positive_similarity", "negative_similarity", "similarity_overlap",
    "train_embedding_density", "train_spectral_decay", "train_spectral_decay_reversed",
    "train_positive_similarity", "train_negative_similarity", "train_similarity_overlap",
    "transfer_map_l2", "transfer_map_l2_std", "transfer_map_cosine", "transfer_map_cosine_std",
    "transfer_map_chance", "transfer_classes",
    *(f"{name}{end}" for name in FNMR.values() for end in ("", "_low", "_high")),
    *(f"{side}_{name}" for side in ("train", "test") for name in METRICS),
    *(f"{name}_gap" for name in METRICS),
)  # fmt: skip
# Measures that depend on the labels of test images. In a landmark set these labels are benchmarks, not
# objects, so these measures are omitted there.
_BY_TEST_LABEL = (
    "embedding_density", "density_", "positive_", "negative_", "similarity_", "transfer_", "test_", "classes",
)  # fmt: skip


@dataclass(frozen=True)
class AnalyzedNetwork:
    """The measures of a network by COLUMNS, and its curves."""

    row: dict[str, Any]
    curves: dict[str, Any]
    files: dict[str, str]  # sha256 of the embedding files


@threadpool_limits.wrap(limits=1, user_api="blas")  # threads of BLAS spin between small products
def analyze(
    root: Path,
    run: tuple[str, str, int],
    settings: AnalyzeSettings,
    intervals: Intervals,
) -> list[AnalyzedNetwork]:
    """The selected network and the untrained network of a run (dataset, method, seed).

    Reads `root`/<dataset>/<method>/<seed>/{train,test,test-untrained}.arrow. The reduction is of
    the embeddings of the selected network, for more histograms. Raises UserError for a missing file, and as
    `learned_reduction` does.
    """
    dataset, method, seed = run
    folder = root / dataset / method / str(seed)
    truth = folder / "ground_truth.parquet"
    ground_truth = pq.read_table(truth) if truth.is_file() else None
    result = []
    for network, name in (("selected", "test"), ("untrained", "test-untrained")):
        identity = {"dataset": dataset, "method": method, "seed": seed, "network": network}
        test = read(folder / f"{name}.arrow")
        row, curves = _test_classes(test, settings)
        if ground_truth is None:
            _operating_points(test, intervals, row, curves)
        if network == "selected":
            train = read(folder / "train.arrow")
            row |= train_test_gap((train.embedding, train.label), (test.embedding, test.label))
            _train_classes(train, settings, row, curves)
            if ground_truth is None:
                _embedding_map(test, curves)
            if settings.reduce is not None:
                reduction = learned_reduction(settings.reduce, folder, "analyze.reduce")
                curves["reduced"] = _reduced_similarities(reduction, train, test, ground_truth, settings)
        else:
            row |= retrieved("test", test.embedding, test.label)
        if test.attributes is not None:
            _transfer(test.attributes, test, settings, row, curves)
        if ground_truth is not None:
            curves["benchmarks"] = _of_benchmarks(test, ground_truth, settings.histogram_bins)
            row = {
                measure: value
                for measure, value in row.items()
                if not measure.startswith(_BY_TEST_LABEL) and not measure.endswith("_gap")
            }
        files = ("test", "train", "test-last") if network == "selected" else (name,)
        paths = {file: folder / f"{file}.arrow" for file in files}
        digests = {file: sha256_of(path) for file, path in paths.items() if path.is_file()}
        values = identity | row
        rounded_row = {column: rounded(values.get(column)) for column in COLUMNS}
        result.append(AnalyzedNetwork(rounded_row, identity | curves, digests))
    return result


def _test_classes(test: Embeddings, settings: AnalyzeSettings) -> tuple[dict[str, Any], dict[str, Any]]:
    """Measures and curves of the embeddings of test classes."""
    density, values = embedding_density(test.embedding, test.label), spectrum(test.embedding)
    energy, cosine = pca_energy(test.embedding), _similarities(test, settings)
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
        "spectrum": rounded_list(values.values),
        "pca_energy": rounded_list(energy),
        "edges": rounded_list(cosine.edges),
        **_histograms(cosine),
    }
    return row, curves


def _train_classes(
    train: Embeddings, settings: AnalyzeSettings, row: dict[str, Any], curves: dict[str, Any]
) -> None:
    """Adds the measures of training classes that are compared with those of test classes."""
    decay = decay_modes(spectrum(train.embedding).values)
    cosine = _similarities(train, settings)
    row |= {f"train_{name}": decay[name] for name in ("spectral_decay", "spectral_decay_reversed")}
    row["train_embedding_density"] = embedding_density(train.embedding, train.label).ratio
    row["train_positive_similarity"] = cosine.positive.mean
    row["train_negative_similarity"] = cosine.negative.mean
    row["train_similarity_overlap"] = cosine.overlap
    curves |= _histograms(cosine, "train_")


def _reduced_similarities(
    reduction: Reduction,
    train: Embeddings,
    test: Embeddings,
    ground_truth: pa.Table | None,
    settings: AnalyzeSettings,
) -> dict[str, Any]:
    """The dimensions of the reduced embeddings and their histograms, on train and on test classes, and on the
    benchmarks of a landmark set."""
    train, test = (rows._replace(embedding=apply(reduction, rows.embedding)) for rows in (train, test))
    curves: dict[str, Any] = {"dim": len(reduction.projection)}
    for rows, prefix in ((train, "train_"), (test, "")):
        curves |= _histograms(_similarities(rows, settings), prefix)
    if ground_truth is not None:
        curves["benchmarks"] = _of_benchmarks(test, ground_truth, settings.histogram_bins)
    return curves


def _of_benchmarks(test: Embeddings, ground_truth: pa.Table, bins: int) -> dict[str, Any]:
    """The histograms of each benchmark, whose ground truth defines the pairs."""
    return {
        benchmark: _histograms(cosine)
        for benchmark, cosine in benchmark_similarities(test, ground_truth, bins).items()
    }


def _similarities(rows: Embeddings, settings: AnalyzeSettings) -> Similarities:
    return similarities(rows.embedding, rows.label, settings.histogram_bins, settings.pairs)


def _histograms(cosine: Similarities, prefix: str = "") -> dict[str, Any]:
    return {
        f"{prefix}{kind}": plain_histogram(histogram)
        for kind, histogram in (("positive", cosine.positive), ("negative", cosine.negative))
    }


def _operating_points(
    test: Embeddings, intervals: Intervals, row: dict[str, Any], curves: dict[str, Any]
) -> None:
    """Adds FNMR at FMR with intervals to the row, and the same with thresholds to the curves."""
    points = operating_points(test.embedding, test.label, intervals)
    for point in points:
        name = FNMR[point.rate]
        row |= {name: point.fnmr, f"{name}_low": point.low, f"{name}_high": point.high}
    curves["operating_points"] = [
        {field: rounded(value) for field, value in asdict(point).items()} for point in points
    ]


def _embedding_map(test: Embeddings, curves: dict[str, Any]) -> None:
    """Adds the map of the embedding in two dimensions, if it has one."""
    plane = embedding_map(test.row_id, test.label, test.embedding)
    if plane is not None:
        curves["map"] = {
            "rows": plane.rows.tolist(),
            "labels": plane.labels.tolist(),
            "x": rounded_list(plane.points[:, 0]),
            "y": rounded_list(plane.points[:, 1]),
            "variance": rounded_list(plane.variance),
        }


def _transfer(
    attributes: Float[np.ndarray, "N M"],
    test: Embeddings,
    settings: AnalyzeSettings,
    row: dict[str, Any],
    curves: dict[str, Any],
) -> None:
    """Adds the attribute shares of classes and, with enough classes, the transfer of attributes."""
    names = np.unique(test.label)
    curves["attributes"] = {
        "labels": names[:ATTRIBUTE_CLASSES].tolist(),
        "share": [
            rounded_list(attributes[test.label == name].mean(0, dtype=np.float64))
            for name in names[:ATTRIBUTE_CLASSES]
        ],
    }
    if len(names) >= LEAST_CLASSES:
        transfer = attribute_transfer(
            attributes,
            test.embedding,
            test.label,
            settings.transfer_splits,
            settings.transfer_ridge,
            settings.transfer_classes,
            title="analyze: transfer of attributes",
        )
        numbers_of = asdict(transfer)
        row["transfer_classes"] = numbers_of.pop("classes")
        row |= {f"transfer_map_{name}": value for name, value in numbers_of.items()}


def numbers(
    networks: Sequence[AnalyzedNetwork], shares: Iterable[Mapping[str, Any]] = ()
) -> dict[str, float]:
    """The headline measures of the selected network of a run, for `dvc metrics`.

    The measures are HEADLINE; undefined ones are omitted. The content of the run has all measures. shares:
    the rows of positions.py; the first, the map of the method, adds `weight_on_object` and `object_area`.
    """
    selected = next(network.row for network in networks if network.row["network"] == "selected")
    values = {name: selected[name] for name in HEADLINE if selected[name] is not None}
    for share in shares:
        values.setdefault("weight_on_object", share["share"])
        values.setdefault("object_area", share["area"])
    return values


def content_of(
    networks: Sequence[AnalyzedNetwork], shares: Sequence[Mapping[str, Any]]
) -> dict[str, list[Any]]:
    """The file of a run: row, curves and digests of each network, and the shares of weight on the object."""
    content = [{"row": each.row, "curves": each.curves, "files": each.files} for each in networks]
    return {"networks": content, "object_shares": list(shares)}
