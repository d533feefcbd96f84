"""Pictures of a folder -> catalog.

A picture that an earlier or a killed build embedded is not embedded again.
"""

import contextlib
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np
from jaxtyping import Float32

from unseen.data.ingest.sources.folder import SUFFIXES, enumerated
from unseen.data.transforms import resized
from unseen.evaluation.index.kinds import Setting, stores_vectors
from unseen.frozen.embedder import Embedder, require_distinct
from unseen.frozen.encoded import Precision
from unseen.frozen.labels import FOLDERS, NONE, labels_of
from unseen.frozen.network import Network, default_network, write_network
from unseen.frozen.pictures import Listed, Stamp, listed
from unseen.frozen.store import BLOCK, VECTORS, ArrayStore
from unseen.frozen.workers import embedding, processes_of
from unseen.runtime.errors import UserError
from unseen.runtime.files import restore_directory, unwritable_is_an_error
from unseen.runtime.lock import exclusive
from unseen.runtime.mounts import beside, is_free
from unseen.runtime.names import printable, say
from unseen.training.export.model import device
from unseen.training.precision import computes_with_bfloat16
from unseen_search.catalog.catalog import Catalog
from unseen_search.catalog.engine import ONNX, OnnxEngine, runs_onnx
from unseen_search.catalog.files import ABOUT, INDEX, MODEL, ONNX_MODEL, PICTURES, precision_of, read_about
from unseen_search.catalog.onnx_model import PHOTOS, checked_onnx
from unseen_search.catalog.write import Contents, Model, default_setting, write_catalog

MOST_REMOVED = 0.2  # of the pictures of a catalog, by an update without `remove`
_LISTED = 5  # damaged pictures in an error message


def build(
    photos: Path,
    output: Path,
    model: Path | Network | None = None,
    skip_damaged: bool = False,
    index: Setting | None = None,
    labels: str | None = None,
    processes: int | None = None,
    workers: int | None = None,
    precision: Precision | Literal["auto"] | None = None,
    remove: bool = False,
    onnx: bool | None = None,
) -> Catalog:
    """Embeds every picture below `photos` with a model and writes the catalog `output`.

    `model` is the directory of a trained model or a published network. None: the model of the existing
    catalog, otherwise the default network (pipeline/frozen/network.py). An existing catalog is updated:
    new pictures are added, missing ones are removed, and the vectors of unchanged files are kept if the model
    is the same. A picture is identified by its bytes, so moving files embeds nothing; a file with the path,
    size and modification time of the catalog is not read. A damaged catalog is built again from the pictures.
    Vectors that a killed build had embedded are read from `<output>.unfinished`, or from
    `.<output>.unfinished` in a mount point.

    `index` is the kind of index and its settings; None: that of the existing catalog, otherwise flat, or an
    approximate one from 10^6 pictures on (write.py).
    `labels` is the source of the labels (labels.py): "none", "folders", or the path of a CSV; None: that of
    the existing catalog, otherwise none.
    `workers` is the number of processes that embed (workers.py), which does not change a byte at the same
    precision; `processes` is that of those that read the files.
    `precision` is that of the network's products. "auto" is bfloat16 if the processor has instructions for
    it. None: that of the existing catalog, otherwise float32. With another precision than that of the
    existing catalog, every picture is embedded again.
    `remove`: an update may remove more than `MOST_REMOVED` of the pictures.
    `onnx`: also store an ONNX model, with which a search needs no PyTorch (engine.py); it needs the extra
    `onnx`, and vectors of float32. None: if the existing catalog has one.

    Raises UserError if there is no picture, another process builds this catalog, a file name is not UTF-8,
    the model is missing, incomplete or gives no distinct vectors, the labels cannot be read, the disk is
    full, the pictures are too few for the index, too many are missing without `remove`, or one cannot be read
    without `skip_damaged`; then nothing has changed. Skipped pictures are listed in catalog.json. Raises
    ValueError for an index without full vectors.
    """
    if index is not None and not stores_vectors(index):
        raise ValueError("the index of a catalog must contain the full vectors: set refine")
    photos, output = Path(photos), Path(output)
    lock = exclusive(beside(output, f".{output.resolve().name}.lock"), f"builds {output}")
    with lock, unwritable_is_an_error(output):
        restore_directory(output)
        if output.exists() and not _is_catalog(output) and not is_free(output):
            problem = f"{output} exists and is not a catalog."
            raise UserError(problem, "Choose another directory, or remove it.")
        with _scratch(output):
            source, model_name = _model(output, model)
            embedder = Embedder(source, _precision(output, precision))
            settings = _Settings(skip_damaged, index, labels, processes, workers, remove, onnx)
            return _build(photos, output, embedder, model_name, settings)


@dataclass(frozen=True)
class _Settings:
    """As of `build`."""

    skip_damaged: bool
    index: Setting | None
    labels: str | None
    processes: int | None
    workers: int | None
    remove: bool
    onnx: bool | None


def _build(photos: Path, output: Path, embedder: Embedder, model_name: str, settings: _Settings) -> Catalog:
    require_distinct(embedder)
    fingerprint = embedder.fingerprint()
    earlier = _earlier(output)
    pictures = listed(photos, settings.processes, _unchanged(earlier, photos))
    if pictures.damaged and not settings.skip_damaged:
        raise _damaged(photos, pictures.damaged)
    if not pictures.paths:
        raise UserError(
            f"{photos} contains no picture.", f"Put pictures there: {', '.join(sorted(SUFFIXES))}."
        )
    if earlier is not None:
        _report_removed(earlier, pictures, photos, settings.remove)
    label_source = _label_source(output, settings.labels)
    label_of = labels_of(label_source, pictures.paths, photos)
    stored = _onnx_of(earlier, fingerprint)
    onnx_model = None
    is_wanted = stored is not None if settings.onnx is None else settings.onnx
    if is_wanted and embedder.precision == "float32":
        places = np.unique(np.linspace(0, len(pictures.paths) - 1, PHOTOS).astype(int))
        checked = [photos / pictures.paths[place] for place in places]
        onnx_model = checked_onnx(embedder, _unfinished(output) / ONNX, stored, checked)
    engine = None
    if onnx_model is not None and runs_onnx():
        engine = OnnxEngine(onnx_model.path, embedder.input, settings.workers, resized)
    kind = embedder.precision if engine is None else "onnx"
    unfinished = _unfinished(output) / f"{fingerprint[:16]}-{kind}"
    vectors = ArrayStore(unfinished, embedder.dim, VECTORS)
    if earlier is not None and _is_of_model(earlier, output, fingerprint, embedder.precision):
        vectors.add(earlier.sha256, earlier.vectors)
    vectors.refresh()
    path_of = {digest: photos / path for digest, path in zip(pictures.sha256, pictures.paths, strict=True)}
    new = len(vectors.missing(path_of))
    say(f"catalog: {len(pictures.paths):,} pictures, {new:,} of them to be embedded by {model_name}")
    count = processes_of(new, settings.workers) if engine is None else 1
    with embedding(engine or embedder, count) as embed:

        def compute(paths: list[Path], start: int) -> Float32[np.ndarray, "n D"]:
            return embed(paths, f"catalog: embed {start + 1:,} to {start + len(paths):,} of {new:,}")

        vectors.fill(path_of, BLOCK * count, compute)

    setting = settings.index
    if setting is None:
        setting = (
            default_setting(len(pictures.paths), embedder.dim) if earlier is None else earlier.index.setting
        )
    contents = Contents(
        photos,
        pictures,
        label_of,
        label_source,
        Model(
            model_name,
            fingerprint,
            embedder.dim,
            embedder.files(),
            embedder.precision,
            embedder.training_classes,
            onnx_model,
        ),
    )
    write_catalog(output, contents, vectors, setting)
    shutil.rmtree(unfinished.parent, ignore_errors=True)
    return Catalog(output)


def _report_removed(earlier: Catalog, pictures: Listed, photos: Path, remove: bool) -> None:
    """Lists what the update removes, by folder. Raises UserError, unless `remove`, if it is more than
    `MOST_REMOVED` of the catalog. A file that was moved is not removed."""
    kept, paths = set(pictures.sha256), zip(earlier.paths, earlier.sha256, strict=True)
    folders = Counter(PurePosixPath(path).parent.as_posix() for path, digest in paths if digest not in kept)
    removed = folders.total()
    if not removed:
        return
    where = enumerated([f"{folder} ({count:,})" for folder, count in folders.most_common()])
    what = f"{removed:,} of the {len(earlier):,} pictures of the catalog are missing in {photos}: {where}."
    if removed > MOST_REMOVED * len(earlier) and not remove:
        raise UserError(
            what,
            "Correct the folder, or mount its disk. To remove the pictures from the catalog, add --remove.",
        )
    say(f"catalog: removed: {printable(what)}")


def _damaged(photos: Path, damaged: dict[str, str]) -> UserError:
    lines = [printable(f"{photos / name}: {reason}") for name, reason in list(damaged.items())[:_LISTED]]
    more = f"\n  and {len(damaged) - _LISTED:,} more" if len(damaged) > _LISTED else ""
    return UserError(
        f"{len(damaged):,} picture{'s' * (len(damaged) > 1)} cannot be read:\n  " + "\n  ".join(lines) + more,
        "Repair or remove them, or exclude them with --skip-damaged.",
    )


def _unfinished(output: Path) -> Path:
    """Where the vectors of unfinished builds are."""
    place = beside(output, f".{output.resolve().name}.unfinished")
    return output.parent / f"{output.name}.unfinished" if place.parent != output.resolve() else place


def _is_catalog(output: Path) -> bool:
    """Whether a build made this directory, even if one of its files is missing. Others are never replaced."""
    return (output / ABOUT).is_file() or ((output / INDEX).is_file() and (output / PICTURES).is_file())


@contextlib.contextmanager
def _scratch(output: Path) -> Iterator[None]:
    """Removes the models of the unfinished build at the end, and keeps its vectors."""
    directory = _unfinished(output)
    try:
        yield
    finally:
        shutil.rmtree(directory / MODEL, ignore_errors=True)
        (directory / ONNX).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it contains vectors
            directory.rmdir()


def _model(output: Path, model: Path | Network | None) -> tuple[Path, str]:
    """The directory of the model, and its name in catalog.json. `_scratch` removes a published one.

    Raises UserError for a network that cannot be built, and without a model if the model of the catalog is
    damaged, or if there is no catalog and no default network.
    """
    if model is None and _is_catalog(output):
        return _model_of(output)
    if model is not None and not isinstance(model, Network):
        return Path(model), str(model)
    network = model or default_network()
    directory = _unfinished(output) / MODEL
    write_network(network, directory)
    return directory, network.name


def _model_of(output: Path) -> tuple[Path, str]:
    """The model of an existing catalog, and its name. Raises UserError if it is damaged."""
    remedy = "Name a model: --model DIR for a trained one, e.g. data/models/folder/ms/0, or --network NAME."
    try:
        about = read_about(output)
        fingerprint = Embedder(output / MODEL).fingerprint()
    except UserError as error:
        raise UserError(f"The model of the catalog cannot be used: {error.what}", remedy) from error
    if fingerprint != about["fingerprint"]:
        raise UserError(f"{output / MODEL} is not the model that embedded this catalog.", remedy)
    return output / MODEL, about["model"]


def _earlier(output: Path) -> Catalog | None:
    """The existing catalog; None without one, or if it is damaged."""
    if not _is_catalog(output):
        return None
    try:
        return Catalog(output, verify=True)
    except UserError as error:
        say(f"catalog: {error.what} {output} is built again: every picture is embedded again")
        return None


def _onnx_of(earlier: Catalog | None, fingerprint: str) -> Path | None:
    """The ONNX model of a catalog with the same model."""
    if earlier is None or earlier.about["fingerprint"] != fingerprint or not earlier.about["onnx"]:
        return None
    return earlier.directory / ONNX_MODEL


def _unchanged(earlier: Catalog | None, photos: Path) -> dict[tuple[str, Stamp], str]:
    """The sha256 of the pictures of a catalog of the same folder, by path and stamp."""
    if earlier is None or earlier.photos != photos.resolve():
        return {}
    sizes, times = earlier.stamps
    return {
        (path, Stamp(size, mtime)): digest
        for path, size, mtime, digest in zip(earlier.paths, sizes, times, earlier.sha256, strict=True)
        if mtime is not None
    }


def _precision(output: Path, precision: Precision | Literal["auto"] | None) -> Precision:
    """The precision to embed with, see `build`."""
    if precision == "auto":
        return "bfloat16" if computes_with_bfloat16(device()) else "float32"
    if precision is not None:
        return precision
    try:
        return precision_of(read_about(output)) if _is_catalog(output) else "float32"
    except UserError:  # _earlier reports the damaged catalog
        return "float32"


def _is_of_model(earlier: Catalog, output: Path, fingerprint: str, precision: Precision) -> bool:
    """Whether the vectors of the existing catalog are of the same model and precision."""
    model = earlier.about["model"]
    if earlier.about["fingerprint"] != fingerprint:
        other = f"has another model ({model})"
    elif earlier.precision != precision:
        other = f"was embedded in {earlier.precision}"
    else:
        return True
    say(f"catalog: {output} {other}: every picture is embedded again")
    return False


def _label_source(output: Path, labels: str | None) -> str:
    """The source of the labels, as catalog.json contains it: a CSV by its absolute path."""
    if labels is None:
        try:
            return str(read_about(output)["labels"]) if _is_catalog(output) else NONE
        except UserError:  # _earlier reports the damaged catalog
            return NONE
    return labels if labels in (NONE, FOLDERS) else str(Path(labels).resolve())
