"""The files of a catalog from stored vectors. The memory contains the index and a block of vectors."""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float32
from safetensors.numpy import save_file

from unseen.evaluation.curve import curve, picture, plain
from unseen.evaluation.decision import (
    MEAN,
    RULES,
    WHITENED,
    WITH_MARGIN,
    choose,
    drawn,
    joined,
    left_out,
    means,
)
from unseen.evaluation.index.index import load, save
from unseen.evaluation.index.kinds import to_plain
from unseen.evaluation.index.mapped import all_vectors, build_mapped, recall_mapped
from unseen.evaluation.index.recall import Recall
from unseen.evaluation.settings import Flat, Hnsw, IvfPq, Setting
from unseen.evaluation.unknown import LEAST_LEFT_OUT, bounded_rules, without_trained
from unseen.frozen.encoded import Precision
from unseen.frozen.pictures import Listed
from unseen.frozen.store import ArrayStore
from unseen.frozen.training_classes import FILE, write_training_classes
from unseen.runtime.digest import sha256_of
from unseen.runtime.files import atomic_directory
from unseen.runtime.names import say
from unseen.runtime.sealed import write_sealed
from unseen_search.catalog.files import (
    ABOUT,
    CURVE,
    DECISION,
    INDEX,
    MODEL,
    ONNX_MODEL,
    PICTURES,
    RIVALS,
    SCHEMA_VERSION,
)
from unseen_search.catalog.onnx_model import OnnxModel
from unseen_search.catalog.unlabelled import rivals_without_labels

FLAT_BELOW = 1_000_000  # pictures, from which a new catalog has an approximate index
ROWS = 8192  # of a row group of the table: a search reads those of its matches
BLOCK = 1 << 14  # vectors in memory at a time
_GATHERED = "vectors.partial"  # of all pictures, until the index is written
QUERIES, K = 200, 10  # of the recall


class Model(NamedTuple):
    """The model of a catalog."""

    name: str
    fingerprint: str
    dim: int
    files: list[Path]
    precision: Precision
    training_classes: frozenset[str] | None = None  # empty for a published network; None: unknown
    onnx: OnnxModel | None = None


class Contents(NamedTuple):
    """What a catalog contains besides the vectors."""

    photos: Path
    pictures: Listed
    labels: list[str | None]
    label_source: str
    model: Model


def default_setting(count: int, dim: int) -> Setting:
    """The index of a new catalog: flat below 10^6 pictures, otherwise codes whose best rows are compared
    again by their full vectors, or a graph if the length of the codes does not divide the dimensions."""
    if count < FLAT_BELOW:
        return Flat()
    codes = IvfPq(probes=256, refine=1000)  # recall and time: docs/scale.md
    return Hnsw() if dim % codes.code_bytes else codes


def write_catalog(output: Path, contents: Contents, vectors: ArrayStore, setting: Setting) -> None:
    """Writes the catalog and replaces an existing one. It prints the recall of an approximate index.

    Raises UserError as `build_mapped` does, and if the disk is full; then nothing has changed.
    """
    digests = contents.pictures.sha256
    with atomic_directory(output) as directory:
        gallery = _gathered(directory / _GATHERED, digests, vectors)
        built = build_mapped(gallery, setting)
        save(directory / INDEX, built)
        del built, gallery  # from here on the file of the index is mapped
        (directory / _GATHERED).unlink()
        index = load(directory / INDEX, setting, mapped=True)
        _write_table(directory / PICTURES, contents)
        measured: Recall | None = None
        decision: dict[str, Any] | None = None
        if not isinstance(setting, Flat):
            measured = recall_mapped(index, K, QUERIES, 0)
            say(
                f"catalog: recall against exact search: {measured.at_1:.3f} of the nearest picture, "
                f"{measured.at_k:.3f} of the {measured.k} nearest ({measured.queries:,} queries)"
            )
        if _has_products(contents.labels):
            say("catalog: compare every photo with those of other products")
            trained = contents.model.training_classes or frozenset()
            if trained and not trained & set(contents.labels):
                say(
                    f"catalog: warning: none of the {len(trained):,} training classes of the model is a "
                    "label of the catalog. They are compared by name: if the catalog contains them under "
                    "other names, `--at-most-false` lets too many unknown photos match. Use the same labels "
                    "as in training."
                )
            decision = _write_decision(directory, all_vectors(index), contents.labels, trained)
        elif None in contents.labels and len(digests) > 1:
            of_photos = rivals_without_labels(index, contents.photos, contents.pictures.paths)
            pq.write_table(pa.table(of_photos._asdict()), directory / RIVALS)
        del index
        (directory / MODEL).mkdir()
        for path in contents.model.files:
            shutil.copyfile(path, directory / MODEL / path.name)
        files = [path for path in sorted(directory.iterdir()) if path.is_file()]
        if contents.model.training_classes:
            write_training_classes(directory / MODEL, contents.model.training_classes)
            files.append(directory / MODEL / FILE)
        onnx = contents.model.onnx
        if onnx is not None:
            files.append(Path(shutil.copyfile(onnx.path, directory / ONNX_MODEL)))
        about = {
            "schema_version": SCHEMA_VERSION,
            "photos": str(contents.photos.resolve()),
            "pictures": len(digests),
            "dim": contents.model.dim,
            "model": contents.model.name,
            "fingerprint": contents.model.fingerprint,
            "precision": contents.model.precision,
            "onnx": onnx and {"difference": onnx.difference, "input": onnx.input},
            "index": to_plain(setting),
            "recall": None if measured is None else measured._asdict(),
            "labels": contents.label_source,
            "decision": decision,
            "left_out": contents.pictures.damaged,
            "not_read": dict(contents.pictures.not_read),
            "files": {path.relative_to(directory).as_posix(): sha256_of(path) for path in files},
            "sizes": {path.relative_to(directory).as_posix(): path.stat().st_size for path in files},
        }
        write_sealed(directory / ABOUT, about)


def _gathered(path: Path, digests: list[str], vectors: ArrayStore) -> Float32[np.ndarray, "N D"]:
    """Writes the vectors in the order of the pictures into a file, and maps it into memory."""
    with path.open("wb") as file:
        for start in range(0, len(digests), BLOCK):
            block = vectors.rows(digests[start : start + BLOCK])
            file.write(block.data)
    return np.memmap(path, np.float32, "r", shape=(len(digests), block.shape[1]))


def _write_table(path: Path, contents: Contents) -> None:
    sizes, times = zip(*contents.pictures.stamps, strict=True)
    columns = {
        "path": contents.pictures.paths,
        "sha256": contents.pictures.sha256,
        "size": pa.array(sizes, pa.int64()),
        "mtime_ns": pa.array(times, pa.int64()),
        "label": pa.array(contents.labels, pa.string()),
    }
    pq.write_table(pa.table(columns), path, row_group_size=ROWS)


def _has_products(labels: list[str | None]) -> bool:
    """Whether every photo has a label, and there are two products: what the calibration needs."""
    return None not in labels and len(set(labels)) > 1


def _write_decision(
    directory: Path, rows: Float32[np.ndarray, "N D"], labels: list[str | None], trained: frozenset[str]
) -> dict[str, Any]:
    """Chooses the rule of the products (decision.py) and those for shares of false matches, and writes what
    they need, the photos that were left out and the picture of the curve. trained: the training classes of
    the model, which choose nothing unless the others are too few. Returns the rule, that of each share, all
    rules and the curve."""
    names, numbered = np.unique(np.array(labels, dtype=str), return_inverse=True)
    numbers, is_trained = numbered.astype(np.int64), np.isin(names, sorted(trained))
    photos = drawn(numbers, is_trained)
    tables = left_out(rows, numbers, photos, RULES)
    if len(names) - int(is_trained.sum()) < LEAST_LEFT_OUT:
        is_trained = np.zeros(len(names), bool)
    choosing = {rule: without_trained(table, len(names), is_trained) for rule, table in tables.items()}
    choices, classes = choose(choosing), len(names) - int(is_trained.sum())
    rule = choices[0].rule
    bounded = bounded_rules(choosing, classes, rule)
    rules = list(dict.fromkeys((rule, *bounded.values())))
    pq.write_table(pa.table(joined([tables[each] for each in rules])._asdict()), directory / RIVALS)
    kinds = {each.removesuffix(WITH_MARGIN) for each in rules} & {MEAN, WHITENED}
    tensors = {kind: means(kind, rows, numbers, photos)._asdict().items() for kind in sorted(kinds)}
    if tensors:
        named = {f"{kind}/{name}": each for kind, own in tensors.items() for name, each in own}
        save_file({name: each for name, each in named.items() if each is not None}, directory / DECISION)
    points = curve(choosing[rule], classes)
    if points:
        (directory / CURVE).write_text(picture(points), encoding="utf-8")
    return {
        "rule": rule,
        "bounded": [{"at_most_false": share, "rule": each} for share, each in bounded.items()],
        "rules": [choice._asdict() for choice in choices],
        "curve": [plain(point) for point in points],
    }
