"""The files of a catalog, each compared with its size and sha256 in catalog.json.

A catalog is a directory with all files that a search needs:

index.faiss         FAISS index of the unit vectors, row i for picture i (IndexFlatIP, or another kind of
                    pipeline/evaluation/index); inner products are cosines, readable by any program with FAISS
pictures.parquet    path below the folder of the pictures; sha256, size and modification time of the file; its
                    label (a time just before the build and a missing label are null)
rivals.parquet      what each picture gets if it or its product is left out (decision.py), by one rule after
                    the other, or, if a picture has no label, if its near-duplicates are (unlabelled.py)
decision.safetensors  what rules of class means need (decision.py)
decision.svg        what known photos get at each rate of false matches (curve.py)
catalog.json        schema version, folder and number of the pictures, name and fingerprint of the model, the
                    precision in which it embeds, setting of the index and its recall against exact search,
                    source of the labels, rule of the products, those for shares of false matches, all rules
                    and the curve (null without labels), files that were left out, sha256 and size of the
                    files above; largest difference of the vectors of the ONNX model, and its input (null
                    without one); its seal (unseen.runtime.sealed)
model/              weights.safetensors, and recipe.json of a trained model or network.json of a published
                    network; the names of its training classes if they are known (training_classes.py);
                    model.onnx, which embeds queries without PyTorch (engine.py)
"""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa

from unseen.evaluation.index.kinds import from_plain
from unseen.frozen.encoded import Precision
from unseen.runtime.digest import sha256_of
from unseen.runtime.errors import UserError
from unseen.runtime.sealed import unsealed
from unseen_search.catalog.engine import ONNX

INDEX, PICTURES, RIVALS = "index.faiss", "pictures.parquet", "rivals.parquet"
DECISION, CURVE = "decision.safetensors", "decision.svg"
ABOUT, MODEL = "catalog.json", "model"
ONNX_MODEL = f"{MODEL}/{ONNX}"
VERIFIED = 64 * 2**20  # bytes of a file that is verified whenever a catalog is opened
SCHEMA_VERSION = 5  # of the directory
_ABOUT_TYPES = {
    "photos": str, "pictures": int, "dim": int, "model": str, "fingerprint": str,
    "index": dict, "labels": str, "files": dict, "sizes": dict,
    "precision": str, "decision": dict, "onnx": dict,
}  # fmt: skip
_OPTIONAL = {"decision": {"rule", "bounded"}, "onnx": {"input"}}  # may be null; keys that they have


def read_about(directory: Path) -> dict[str, Any]:
    """The content of catalog.json.

    Raises UserError if it is missing, damaged or of another schema version.
    """
    about: dict[str, Any] = read_part(directory, ABOUT, _about)
    if about["schema_version"] != SCHEMA_VERSION:
        raise UserError(
            f"{directory / ABOUT} has schema version {about['schema_version']}, this version of unseen reads "
            f"{SCHEMA_VERSION}.",
            rebuild(directory, model=True),
        )
    return about


def precision_of(about: dict[str, Any]) -> Precision:
    """The precision in which a catalog was embedded, by its catalog.json."""
    precision: Precision = about["precision"]
    return precision


def read_part(directory: Path, name: str, reader: Callable[[Path], Any]) -> Any:
    path = directory / name
    if not path.is_file():
        raise UserError(
            f"{path} is missing: {directory} is not a catalog.",
            f"Build one: `unseen index PHOTOS {shlex.quote(str(directory))}`.",
        )
    try:
        return reader(path)
    except (OSError, ValueError, RuntimeError, pa.ArrowInvalid) as error:
        raise UserError(f"{path} is damaged: {str(error).splitlines()[0]}.", rebuild(directory)) from error


def verify_file(about: dict[str, Any], name: str, verify: bool | None, path: Path) -> None:
    digest, size, length = about["files"][name], about["sizes"][name], path.stat().st_size
    if length != size:
        raise ValueError(f"it has {length:,} bytes, the build wrote {size:,}")
    if (verify or (verify is None and size <= VERIFIED)) and sha256_of(path) != digest:
        raise ValueError("its sha256 is not that of the build")


def rebuild(directory: Path, model: bool = False) -> str:
    """The remedy for a damaged catalog. model: whether its model cannot be used."""
    named = " --network NAME` or `--model DIR" if model else ""
    return f"Build the catalog again: `unseen index PHOTOS {shlex.quote(str(directory))}{named}`."


def _about(path: Path) -> dict[str, Any]:
    """The content of catalog.json without its seal. Raises UserError if the seal differs, and ValueError if
    `build` did not write it."""
    about = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(about, dict):
        raise ValueError("it contains no object")
    about.setdefault("schema_version", None)
    if about["schema_version"] == SCHEMA_VERSION:
        if not about.keys() >= _ABOUT_TYPES.keys():
            raise ValueError(f"it lacks one of the keys {', '.join(sorted(_ABOUT_TYPES))}")
        for name, kind in _ABOUT_TYPES.items():
            if type(about[name]) is not kind and not (about[name] is None and name in _OPTIONAL):
                raise ValueError(f"its `{name}` is not of type {kind.__name__}")
        if about["precision"] not in get_args(Precision):
            raise ValueError("its `precision` is unknown")
        for name, keys in _OPTIONAL.items():
            if about[name] is not None and not about[name].keys() >= keys:
                raise ValueError(f"its `{name}` lacks one of the keys {', '.join(sorted(keys))}")
        json.dumps(about, ensure_ascii=False).encode()  # ValueError for a lone surrogate
        from_plain(about["index"])
        files, sizes = about["files"], about["sizes"]
        if files.keys() != sizes.keys():
            raise ValueError("its `files` and `sizes` name different files")
        if not all(isinstance(size, int) for size in sizes.values()):
            raise ValueError("one of its `sizes` is no integer")
        unsealed(path, about, rebuild(path.parent))
    return about
