"""Photographs of a folder -> catalog. What was embedded before is not embedded again, in a catalog that grows as in a build that was killed."""

import hashlib
import shutil
import sys
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float32

from pipeline.catalog.catalog import ABOUT, INDEX, MODEL, PICTURES, Catalog
from pipeline.catalog.embedder import RECIPE, WEIGHTS, Embedder
from pipeline.ingest.collection import Content
from pipeline.ingest.files.archive import is_hidden
from pipeline.ingest.skim import require_whole
from pipeline.ingest.sources.folder import CONVERT, SUFFIXES, Directory, unread_images, unread_sentence
from pipeline.ingest.workers import Damaged, Job, outcomes
from pipeline.runtime.errors import UserError
from pipeline.runtime.files import atomic_directory, atomic_file, restore_directory, write_json
from pipeline.runtime.progress import track

BLOCK = 2048  # pictures that are embedded before they are kept
_SHOWN = 5
Vectors = dict[str, np.ndarray]  # by the sha256 of the picture's file


class Listed(NamedTuple):
    """What a folder holds."""

    paths: list[str]  # of the whole pictures, sorted
    sha256: list[str]
    damaged: dict[str, str]  # why, by path


def build(model: Path, photos: Path, output: Path, skip_damaged: bool = False, processes: int | None = None) -> Catalog:
    """Embeds every picture below `photos` with the model of a directory and writes the catalog `output`.

    An existing catalog is updated: new pictures are added, missing ones are removed, and the vectors of
    unchanged files are kept if the model is the same. A picture is identified by its bytes, so moving files
    embeds nothing.
    A damaged catalog is built again from the pictures. Vectors that a killed build had embedded are read from
    `<output>.unfinished`.

    Raises UserError if there is no picture, the model is incomplete, the disk is full, or, unless
    `skip_damaged`, a picture cannot be read; then nothing has changed. Skipped ones are named in catalog.json.
    """
    model, photos, output = Path(model), Path(photos), Path(output)
    restore_directory(output)
    if output.exists() and not _is_catalog(output):
        raise UserError(f"{output} exists and is no catalog.", "Name another directory, or remove it.")
    embedder = Embedder(model)
    fingerprint = embedder.fingerprint()
    found = listed(photos, processes)
    if found.damaged and not skip_damaged:
        raise _damaged(photos, found.damaged)
    if not found.paths:
        raise UserError(f"{photos} holds no picture.", f"Put pictures there: {', '.join(sorted(SUFFIXES))}.")

    known = _earlier(output, fingerprint)
    unfinished = output.parent / f"{output.name}.unfinished" / fingerprint[:16]
    known |= _kept(unfinished)
    wanted = dict(zip(found.sha256, found.paths, strict=True))
    new = [digest for digest in wanted if digest not in known]
    sys.stderr.write(f"catalog: {len(found.paths):,} pictures, {len(new):,} of them to be embedded by {model}\n")
    for start in range(0, len(new), BLOCK):
        block = new[start : start + BLOCK]
        vectors = embedder([photos / wanted[digest] for digest in block], f"catalog: embed {start + 1:,} to {start + len(block):,} of {len(new):,}")
        _keep(unfinished / f"{block[0]}.parquet", block, vectors)
        known |= dict(zip(block, vectors, strict=True))

    index = faiss.IndexFlatIP(embedder.dim)
    index.add(np.stack([known[digest] for digest in found.sha256]))
    with atomic_directory(output) as directory:
        faiss.write_index(index, str(directory / INDEX))
        pq.write_table(pa.table({"path": found.paths, "sha256": found.sha256}), directory / PICTURES)
        (directory / MODEL).mkdir()
        for name in (WEIGHTS, RECIPE):
            shutil.copyfile(model / name, directory / MODEL / name)
        about = {"photos": str(photos.resolve()), "pictures": len(found.paths), "dim": embedder.dim, "model": str(model)}
        write_json(directory / ABOUT, {**about, "fingerprint": fingerprint, "left_out": found.damaged})
    shutil.rmtree(unfinished.parent, ignore_errors=True)
    return Catalog(output)


def listed(photos: Path, processes: int | None = None) -> Listed:
    """Reads every picture below a folder to its end.

    Files that are no pictures by their name are left alone and counted; hidden ones are ignored. Images in
    formats that are not read are named in a warning. Raises UserError if a folder cannot be listed.
    """
    files = Directory(photos)
    names = [name for name in files.names() if not is_hidden(name)]
    pictures = [name for name in names if PurePosixPath(name).suffix.lower() in SUFFIXES]
    others = Counter(PurePosixPath(name).suffix.lower() or "no suffix" for name in set(names) - set(pictures))
    if others:
        sys.stderr.write(f"catalog: left alone: {', '.join(f'{count:,} {suffix}' for suffix, count in sorted(others.items()))}\n")
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
    """sha256 of the file. Raises ValueError where it is not one whole picture."""
    assert isinstance(picture, bytes)
    require_whole(np.frombuffer(picture, np.uint8))
    return hashlib.sha256(picture).hexdigest()


def _damaged(photos: Path, damaged: dict[str, str]) -> UserError:
    lines = [f"{photos / name}: {reason}" for name, reason in list(damaged.items())[:_SHOWN]]
    more = f"\n  and {len(damaged) - _SHOWN:,} more" if len(damaged) > _SHOWN else ""
    return UserError(
        f"{len(damaged):,} picture{'s' * (len(damaged) > 1)} cannot be read:\n  " + "\n  ".join(lines) + more,
        "Repair or remove them, or leave them out with --skip-damaged.",
    )


def _is_catalog(output: Path) -> bool:
    """Whether a build made this directory, even if one of its files is missing. Others are never replaced."""
    return (output / ABOUT).is_file() or ((output / INDEX).is_file() and (output / PICTURES).is_file())


def _earlier(output: Path, fingerprint: str) -> Vectors:
    """The vectors of the existing catalog, if it is whole and this model made it."""
    if not output.exists():
        return {}
    try:
        catalog = Catalog(output)
    except UserError as error:
        sys.stderr.write(f"catalog: {error.what} {output} is built again: every picture is embedded anew\n")
        return {}
    if catalog.about["fingerprint"] != fingerprint:
        sys.stderr.write(f"catalog: {output} was made by another model ({catalog.about['model']}): every picture is embedded anew\n")
        return {}
    return dict(zip(catalog.sha256, catalog.vectors(), strict=True))


def _keep(path: Path, digests: list[str], vectors: Float32[np.ndarray, "N D"]) -> None:
    rows = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    with atomic_file(path) as aside:
        pq.write_table(pa.table({"sha256": digests, "vector": rows}), aside)


def _kept(directory: Path) -> Vectors:
    found: Vectors = {}
    for path in sorted(directory.glob("*.parquet")):
        table = pq.read_table(path, memory_map=False)
        vectors = table["vector"].combine_chunks()
        found |= dict(zip(table["sha256"].to_pylist(), vectors.flatten().to_numpy().reshape(len(table), -1), strict=True))
    return found
