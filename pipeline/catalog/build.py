"""Pictures of a folder -> catalog.

A picture that an earlier or a killed build embedded is not embedded again.
"""

import hashlib
import shutil
import sys
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float32

from pipeline.catalog.catalog import (
    ABOUT,
    INDEX,
    MODEL,
    PICTURES,
    RIVALS,
    SCHEMA_VERSION,
    Catalog,
    read_about,
)
from pipeline.catalog.embedder import RECIPE, WEIGHTS, Embedder
from pipeline.catalog.labels import FOLDERS, NONE, labels_of
from pipeline.catalog.unknown import rivals
from pipeline.index.index import build as build_index
from pipeline.index.index import save
from pipeline.index.kinds import Flat, Setting, stores_vectors, to_plain
from pipeline.ingest.collection import Content
from pipeline.ingest.completeness import require_complete
from pipeline.ingest.files.archive import is_hidden
from pipeline.ingest.sources.folder import (
    CONVERT,
    SUFFIXES,
    Directory,
    irregular_sentence,
    unread_images,
    unread_sentence,
)
from pipeline.ingest.workers import Damaged, Job, outcomes
from pipeline.runtime.errors import UserError
from pipeline.runtime.files import atomic_directory, atomic_file, restore_directory, write_json
from pipeline.runtime.progress import track

BLOCK = 2048  # pictures that are embedded before their vectors are written
_LISTED = 5  # damaged pictures in an error message
Vectors = dict[str, np.ndarray]  # by the sha256 of the file of the picture


class Listed(NamedTuple):
    """The pictures of a folder."""

    paths: list[str]  # of the readable pictures, sorted
    sha256: list[str]
    damaged: dict[str, str]  # path -> reason


def build(
    photos: Path,
    output: Path,
    model: Path | None = None,
    skip_damaged: bool = False,
    index: Setting | None = None,
    labels: str | None = None,
    processes: int | None = None,
) -> Catalog:
    """Embeds every picture below `photos` with the model of a directory and writes the catalog `output`.

    `model` None: the model of the existing catalog. An existing catalog is updated: new pictures are added,
    missing ones are removed, and the vectors of unchanged files are kept if the model is the same. A picture
    is identified by its bytes, so moving files embeds nothing. A damaged catalog is built again from the
    pictures. Vectors that a killed build had embedded are read from `<output>.unfinished`.

    `index` is the kind of index and its settings; None: that of the existing catalog, otherwise flat.
    `labels` is the source of the labels (labels.py): "none", "folders", or the path of a CSV; None: that of
    the existing catalog, otherwise none.

    Raises UserError if there is no picture, the model is missing or incomplete, the labels cannot be read,
    the disk is full, the pictures are too few for the index, or, unless `skip_damaged`, a picture cannot be
    read; then nothing has changed. Skipped pictures are listed in catalog.json. Raises ValueError for an
    index without full vectors.
    """
    if index is not None and not stores_vectors(index):
        raise ValueError("the index of a catalog must contain the full vectors: set refine")
    photos, output = Path(photos), Path(output)
    restore_directory(output)
    if output.exists() and not _is_catalog(output):
        raise UserError(f"{output} exists and is no catalog.", "Choose another directory, or remove it.")
    source, model_name = _model(output, model)
    embedder = Embedder(source)
    fingerprint = embedder.fingerprint()
    pictures = listed(photos, processes)
    if pictures.damaged and not skip_damaged:
        raise _damaged(photos, pictures.damaged)
    if not pictures.paths:
        raise UserError(
            f"{photos} contains no picture.", f"Put pictures there: {', '.join(sorted(SUFFIXES))}."
        )

    label_source = _label_source(output, labels)
    label_of = labels_of(label_source, pictures.paths)
    vectors, earlier_index = _earlier(output, fingerprint)
    unfinished = output.parent / f"{output.name}.unfinished" / fingerprint[:16]
    vectors |= _read_unfinished(unfinished)
    path_of = dict(zip(pictures.sha256, pictures.paths, strict=True))
    new = [digest for digest in path_of if digest not in vectors]
    sys.stderr.write(
        f"catalog: {len(pictures.paths):,} pictures, {len(new):,} of them to be embedded by {model_name}\n"
    )
    for start in range(0, len(new), BLOCK):
        block = new[start : start + BLOCK]
        label = f"catalog: embed {start + 1:,} to {start + len(block):,} of {len(new):,}"
        embedded = embedder([photos / path_of[digest] for digest in block], label)
        _write_unfinished(unfinished / f"{block[0]}.parquet", block, embedded)
        vectors |= dict(zip(block, embedded, strict=True))

    setting = index or earlier_index
    rows = np.stack([vectors[digest] for digest in pictures.sha256])
    built = build_index(rows, np.arange(len(rows)), setting)
    with atomic_directory(output) as directory:
        save(directory / INDEX, built)
        columns = {
            "path": pictures.paths,
            "sha256": pictures.sha256,
            "label": pa.array(label_of, pa.string()),
        }
        pq.write_table(pa.table(columns), directory / PICTURES)
        _write_rivals(directory / RIVALS, rows, label_of)
        (directory / MODEL).mkdir()
        for name in (WEIGHTS, RECIPE):
            shutil.copyfile(source / name, directory / MODEL / name)
        about = {
            "schema_version": SCHEMA_VERSION,
            "photos": str(photos.resolve()),
            "pictures": len(pictures.paths),
            "dim": embedder.dim,
            "model": model_name,
            "fingerprint": fingerprint,
            "index": to_plain(setting),
            "labels": label_source,
            "left_out": pictures.damaged,
        }
        write_json(directory / ABOUT, about)
    shutil.rmtree(unfinished.parent, ignore_errors=True)
    return Catalog(output)


def listed(photos: Path, processes: int | None = None) -> Listed:
    """Reads every picture below a folder completely.

    Files without the suffix of a picture are skipped and counted; hidden files are ignored. A warning lists
    images in formats that are not read. Raises UserError if a folder cannot be listed.
    """
    files = Directory(photos)
    names = [name for name in files.names() if not is_hidden(name)]
    if files.irregular:
        sys.stderr.write(f"catalog: warning: {irregular_sentence(files.irregular)}\n")
    pictures = [name for name in names if PurePosixPath(name).suffix.lower() in SUFFIXES]
    others = Counter(PurePosixPath(name).suffix.lower() or "no suffix" for name in set(names) - set(pictures))
    if others:
        counts = ", ".join(f"{count:,} {suffix}" for suffix, count in sorted(others.items()))
        sys.stderr.write(f"catalog: skipped: {counts}\n")
    if unread := unread_images(names):
        sys.stderr.write(f"catalog: warning: {unread_sentence(unread)} {CONVERT}\n")
    paths, digests, damaged = [], [], {}
    results = outcomes(pictures, Job(files.read, _digest), processes)
    for name, result in zip(track(pictures, "catalog: read", "pictures"), results, strict=True):
        if isinstance(result, Damaged):
            damaged[name] = result.reason
        else:
            paths.append(name)
            digests.append(result)
    return Listed(paths, digests, damaged)


def _digest(picture: Content) -> str:
    """sha256 of the file. Raises ValueError if it is not one complete picture."""
    assert isinstance(picture, bytes)
    require_complete(np.frombuffer(picture, np.uint8))
    return hashlib.sha256(picture).hexdigest()


def _damaged(photos: Path, damaged: dict[str, str]) -> UserError:
    lines = [f"{photos / name}: {reason}" for name, reason in list(damaged.items())[:_LISTED]]
    more = f"\n  and {len(damaged) - _LISTED:,} more" if len(damaged) > _LISTED else ""
    return UserError(
        f"{len(damaged):,} picture{'s' * (len(damaged) > 1)} cannot be read:\n  " + "\n  ".join(lines) + more,
        "Repair or remove them, or exclude them with --skip-damaged.",
    )


def _is_catalog(output: Path) -> bool:
    """Whether a build made this directory, even if one of its files is missing. Others are never replaced."""
    return (output / ABOUT).is_file() or ((output / INDEX).is_file() and (output / PICTURES).is_file())


def _model(output: Path, model: Path | None) -> tuple[Path, str]:
    """The directory of the model, and its name in catalog.json.

    Raises UserError without a model if there is no catalog, or none with an undamaged model.
    """
    if model is not None:
        return Path(model), str(model)
    remedy = "Name the directory of a trained model with --model, e.g. data/models/folder/ms/0."
    if not output.exists():
        raise UserError(f"{output} does not exist, and a new catalog needs a model.", remedy)
    try:
        about = read_about(output)
        fingerprint = Embedder(output / MODEL).fingerprint()
    except UserError as error:
        raise UserError(f"The model of the catalog cannot be used: {error.what}", remedy) from error
    if fingerprint != about["fingerprint"]:
        raise UserError(f"{output / MODEL} is not the model that embedded this catalog.", remedy)
    return output / MODEL, about["model"]


def _earlier(output: Path, fingerprint: str) -> tuple[Vectors, Setting]:
    """The vectors of the existing catalog if it is undamaged and of the same model, and its kind of index."""
    if not output.exists():
        return {}, Flat()
    try:
        catalog = Catalog(output)
    except UserError as error:
        sys.stderr.write(f"catalog: {error.what} {output} is built again: every picture is embedded again\n")
        return {}, Flat()
    setting = catalog.index.setting
    if catalog.about["fingerprint"] != fingerprint:
        model = catalog.about["model"]
        sys.stderr.write(f"catalog: {output} has another model ({model}): every picture is embedded again\n")
        return {}, setting
    return dict(zip(catalog.sha256, catalog.vectors(), strict=True)), setting


def _label_source(output: Path, labels: str | None) -> str:
    """The source of the labels, as catalog.json contains it: a CSV by its absolute path."""
    if labels is None:
        try:
            return str(read_about(output)["labels"]) if output.exists() else NONE
        except UserError:  # _earlier reports the damaged catalog
            return NONE
    return labels if labels in (NONE, FOLDERS) else str(Path(labels).resolve())


def _write_rivals(path: Path, rows: Float32[np.ndarray, "N D"], labels: list[str | None]) -> None:
    """Writes the rivals of the photos (unknown.py) if every photo has a label and there are two products."""
    if None in labels or len(set(labels)) < 2:
        return
    sys.stderr.write("catalog: compare every photo with those of other products\n")
    numbered = np.unique(np.array(labels, dtype=str), return_inverse=True)[1]
    pq.write_table(pa.table(rivals(rows, numbered.astype(np.int64))._asdict()), path)


def _write_unfinished(path: Path, digests: list[str], vectors: Float32[np.ndarray, "N D"]) -> None:
    rows = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    with atomic_file(path) as aside:
        pq.write_table(pa.table({"sha256": digests, "vector": rows}), aside)


def _read_unfinished(directory: Path) -> Vectors:
    vectors: Vectors = {}
    for path in sorted(directory.glob("*.parquet")):
        table = pq.read_table(path, memory_map=False)
        rows = table["vector"].combine_chunks().flatten().to_numpy().reshape(len(table), -1)
        vectors |= dict(zip(table["sha256"].to_pylist(), rows, strict=True))
    return vectors
