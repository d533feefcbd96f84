"""Damaged files of every kind: `python -m tests.torture.mutations KIND --cases N`.

Case n of a kind is a valid file of seeds.py with changes that a generator seeded by (kind, n) draws: flipped
bits, extreme values, removed, repeated and inserted bytes, a cut, a part of another file. Settings are
changed as a tree: another type or extreme value, a removed or renamed key. The limits and the meaning of a
violation are those of limited.py; a read file whose values differ from those of a whole one is a violation,
too, except of the kinds in unnoticed.py. The first cases of a kind are files that each reader must refuse.
Files that the project writes are refused by UserError only. The campaign continues where it was stopped.
"""

import argparse
import hashlib
import json
import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch
from ruamel.yaml import YAML

from tests.photos import save_model, save_photos
from tests.torture import network, results, seeds
from tests.torture.damage import damaged
from tests.torture.limited import REFUSALS, Counts, check
from tests.torture.readers import (
    ARCHIVES,
    CHECKPOINTS,
    IMAGES,
    MODULES,
    Read,
    of_file,
    read_labels,
    read_npy,
    read_params,
    read_training_checkpoint,
)
from tests.torture.unnoticed import MAY_CHANGE
from tests.torture.uploads import Service, refused_requests, request, valid_request
from unseen.config.document import Params
from unseen.data.embeddings import read as read_embeddings
from unseen.data.positions import read as read_positions
from unseen.data.shards import Shards
from unseen.data.tables import read_table
from unseen.evaluation.vectors import read_vectors, sides_of
from unseen.experiments.catalogue import studies
from unseen.experiments.plan.files import plan
from unseen.frozen.labels import labels_of
from unseen.frozen.network import load_network, write_network
from unseen.frozen.store import MAPS, VECTORS, ArrayStore, Format
from unseen.methods.artifact import load_method
from unseen.report.report_data import read_history, read_json, read_trials
from unseen.runtime.errors import UserError
from unseen.runtime.files import write_json
from unseen.runtime.sealed import require_digests, write_digests
from unseen.training.history import write_history
from unseen_search.catalog.building import build
from unseen_search.catalog.catalog import Catalog

_TABLES = ("queries.parquet", "neighbours.parquet")
CHUNK = 2000  # cases between two records of the progress
STATE = results.RESULTS / "mutations.json"
_VALUES: tuple[Any, ...] = (
    None, True, "8", "", "a", "a/../b", "é\0", 0, -1, 1, 2**31, 2**70, 1e308, -1e-300, 0.5,
    float("nan"), float("inf"), [], [0], ["8", None], {}, {"name": "x"}, {"grid": [1]},
)  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """A kind of files. `files`: valid ones. `readers`: case n is read by reader n modulo their number.
    `modules`: the code that reads them. `refused`: files that each reader must refuse. `is_own`: the project
    writes such files."""

    files: Sequence[bytes]
    readers: Sequence[Read]
    modules: tuple[str, ...]
    mutate: Callable[[Sequence[bytes], random.Random], bytes]
    factor: int = 1  # on the number of cases
    refused: Sequence[bytes] = ()
    is_own: bool = False


def changed_settings(files: Sequence[bytes], draw: random.Random) -> bytes:
    """A tree of settings with one to three changed values or keys; one time in four damaged as bytes."""
    if draw.randrange(4) == 0:
        return damaged(files, draw)
    tree = deepcopy(_parsed(draw.choice(files)))
    for _ in range(draw.choice((1, 1, 2, 3))):
        _change_tree(tree, draw)
    return json.dumps(tree).encode()


@cache
def _parsed(file: bytes) -> Any:
    return YAML(typ="safe").load(file)


def _change_tree(tree: Any, draw: random.Random) -> None:
    node = tree
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return
        key = draw.choice(keys)
        if isinstance(node[key], dict | list) and draw.randrange(5):
            node = node[key]
            continue
        break
    action = draw.randrange(6)
    if action == 0:
        del node[key]
    elif action == 1 and isinstance(node, dict):
        node[draw.choice(("name", "kind", "like", "x", "é", "a.b", "8"))] = node.pop(key)
    else:
        node[key] = deepcopy(draw.choice(_VALUES))  # a later change may edit it


class Folder:
    """A reader of a folder with one damaged file. A case is the name of the file, a zero byte, its bytes."""

    def __init__(self, folder: Path, names: Sequence[str], read: Callable[[Path], object]) -> None:
        self._folder, self._read = folder, read
        self.files = [name.encode() + b"\0" + (folder / name).read_bytes() for name in names]

    def mutate(self, files: Sequence[bytes], draw: random.Random) -> bytes:
        name, _, content = draw.choice(files).partition(b"\0")
        contents = [file.partition(b"\0")[2] for file in files]
        return name + b"\0" + damaged([content, *contents[:1]] if draw.randrange(8) == 0 else [content], draw)

    def __call__(self, case: bytes) -> object:
        copy = Path(self._folder.name)
        if not copy.exists():
            shutil.copytree(self._folder, copy)
        name, _, content = case.partition(b"\0")
        path = copy / name.decode()
        before = path.read_bytes()
        path.unlink()  # it may be mapped
        path.write_bytes(content)
        try:
            return self._read(copy)
        finally:
            path.unlink()
            path.write_bytes(before)


def _read_shards(folder: Path, verify: bool) -> list[object]:
    """`verify`: compares whole files; a stage compares tables, and an image at its first read."""
    shards = Shards(folder, verify=verify)
    images = [shards.image(row).tobytes() for row in range(len(shards))]
    return [images, shards.labels, *(shards.rows(split) for split in ("train", "test"))]


def _read_model(folder: Path) -> dict[str, Any]:
    """The weights. Of recipe.json only what builds the network is compared: its own digest is missing."""
    return {name: value.numpy() for name, value in load_method(folder).method.state_dict().items()}


def _read_network(folder: Path) -> list[object]:
    method, input = load_network(folder)
    weights = {name: value.numpy() for name, value in method.state_dict().items()}
    return [weights, method.dim, input.model_dump()]


def _read_evaluation(folder: Path) -> list[object]:
    require_digests(folder, "Run the stage again.")
    tables = [read_table(folder / name, "Run the stage again.") for name in _TABLES]
    return [read_json(folder / "metrics.json"), *(table.to_pylist() for table in tables)]


def fingerprint(value: Any) -> str:
    """Text that is equal for equal values of a reader."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, dict):
        return "".join(f"{key}={fingerprint(each)};" for key, each in sorted(value.items()))
    if isinstance(value, list | tuple):
        return "".join(f"{fingerprint(each)}," for each in value)
    return repr(value)


def kinds(folder: Path) -> dict[str, Kind]:
    """The kinds of files. `folder`: an empty one for the valid files.

    The published recipes and studies are read here, once: the processes of the cases are forks, in which the
    threads that compute here would be missing.
    """
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    plan(Params(results.ROOT / "params.yaml"))
    studies()
    seeds.write_shards(folder / "shards")
    names = [name for name, _ in seeds.files_of(folder / "shards")]
    whole = Folder(folder / "shards", names, partial(_read_shards, verify=True))
    read = Folder(folder / "shards", names, partial(_read_shards, verify=False))
    backbone = {"name": network.NAME, "pretrained": False, "batch_norm": "batch"}
    model = save_model(folder / "model", 1, backbone=backbone)
    models = Folder(model, ["recipe.json", "weights.safetensors"], _read_model)
    build(save_photos(folder / "photos"), folder / "catalog", model, labels="folders")
    catalog = Folder(
        folder / "catalog", [name for name, _ in seeds.files_of(folder / "catalog")], _open_catalog
    )
    published = folder / "published"
    write_network(seeds.network(folder), published)
    networks = Folder(published, ["network.json", "weights.safetensors"], _read_network)
    photos = seeds.images()
    tables = seeds.tables()
    write_history(folder / "history.csv", [{"iteration": 2, "loss": 3.0, "map_at_r": 0.4}])
    evaluation = folder / "evaluation"
    evaluation.mkdir()
    for name, table in zip(_TABLES, seeds.query_tables(folder), strict=True):
        (evaluation / name).write_bytes(table)
    write_json(evaluation / "metrics.json", {"map_at_r": 0.25, "queries": 8})
    write_digests(evaluation)
    results_of_stage = Folder(
        evaluation, sorted(path.name for path in evaluation.iterdir()), _read_evaluation
    )
    return {
        "images": Kind(
            photos,
            list(IMAGES.values()),
            MODULES["images"],
            damaged,
            factor=10,
            refused=seeds.damaged_images(),
        ),
        "archives": Kind(
            seeds.archives(),
            list(ARCHIVES.values()),
            MODULES["archives"],
            damaged,
            refused=seeds.damaged_archives(),
        ),
        "CSVs": Kind(
            tables,
            [
                read_labels,
                of_file("labels.csv", lambda path: labels_of(str(path), ["a.jpg"])),
                of_file("trials.csv", read_trials),
            ],
            MODULES["CSVs"],
            damaged,
        ),
        "histories": Kind(
            [(folder / "history.csv").read_bytes()],
            [of_file("history.csv", lambda path: read_history(path, "Run the stage again."))],
            ("unseen.report.report_data",),
            damaged,
            is_own=True,
        ),
        "results of an evaluation": Kind(
            results_of_stage.files,
            [results_of_stage],
            ("unseen.report.report_data",),
            results_of_stage.mutate,
            is_own=True,
        ),
        "params overlays": Kind(
            seeds.params_files(),
            [read_params],
            ("unseen.experiments.plan.files",),
            changed_settings,
        ),
        "checkpoints .pth": Kind(
            seeds.pth_files(), [CHECKPOINTS[".pth"]], ("unseen.networks.checkpoint",), damaged
        ),
        "checkpoints .safetensors": Kind(
            seeds.safetensors_files(), [CHECKPOINTS[".safetensors"]], ("unseen.networks.checkpoint",), damaged
        ),
        "checkpoints of a training": Kind(
            seeds.training_checkpoints(folder),
            [read_training_checkpoint],
            ("unseen.training.checkpoint",),
            damaged,
        ),
        "pickled ground truth": Kind(
            seeds.pickles(),
            [CHECKPOINTS["pickled ground truth"]],
            ("unseen.data.ingest.files.unpickle",),
            damaged,
        ),
        "models": Kind(models.files, [models], ("unseen.methods.artifact",), models.mutate, is_own=True),
        "published networks": Kind(
            networks.files, [networks], ("unseen.frozen.network",), networks.mutate, is_own=True
        ),
        "vectors of unfinished builds": Kind(
            seeds.unfinished_vectors(folder),
            [in_folder("0.parquet", lambda path: stored(path, VECTORS, seeds.VECTORS_ROWS))],
            ("unseen.frozen.store",),
            damaged,
        ),
        "maps of unfinished builds": Kind(
            seeds.unfinished_maps(folder),
            [in_folder("0.arrow", lambda path: stored(path, MAPS, seeds.MAPS_ROWS))],
            ("unseen.frozen.store",),
            damaged,
        ),
        "tables of the report": Kind(
            seeds.query_tables(folder),
            [of_file("queries.parquet", lambda path: read_table(path, "Run the stage again."))],
            ("unseen.data.tables",),
            damaged,
            is_own=True,
        ),
        "shards": Kind(whole.files, [whole, read], ("unseen.data.shards",), whole.mutate, is_own=True),
        "embeddings": Kind(
            seeds.embedding_files(folder),
            [of_file("test.arrow", read_embeddings)],
            ("unseen.data.embeddings",),
            damaged,
            is_own=True,
        ),
        "positions": Kind(
            seeds.positions_files(folder),
            [of_file("0.arrow", read_positions)],
            ("unseen.data.positions",),
            damaged,
            is_own=True,
        ),
        **{
            f"vectors {suffix}": Kind(
                seeds.vector_tables(folder, suffix),
                [of_file(f"vectors{suffix}", lambda path: sides_of(read_vectors(path)))],
                ("unseen.evaluation.vectors",),
                damaged,
            )
            for suffix in (".parquet", ".arrow")
        },
        "vectors .npy": Kind(seeds.npy_files(), [read_npy], ("unseen.evaluation.vectors",), damaged),
        "catalogs and index files": Kind(
            catalog.files, [catalog], ("unseen_search.catalog.catalog",), catalog.mutate, is_own=True
        ),
        "uploads to the service": Kind(
            [valid_request(photo) for photo in photos],
            [Service(folder / "catalog")],
            ("unseen_search.service.app",),
            lambda _, draw: request(photos, draw),
            refused=refused_requests(photos[0]),
        ),
    }


def in_folder(name: str, read: Callable[[Path], object]) -> Read:
    """A reader of a folder that contains only this file."""

    def reader(content: bytes) -> object:
        folder = Path("store")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / name).write_bytes(content)
        values = read(folder)
        if not (folder / name).exists():
            raise ValueError("it is removed")
        return values

    return reader


def stored(folder: Path, form: Format, digests: Sequence[str]) -> np.ndarray | None:
    """The rows of an unfinished build; None if it has no row of the first picture."""
    store = ArrayStore(folder, seeds.DIM, form)
    store.refresh()
    return store.rows(digests) if digests[0] in store else None


def _open_catalog(folder: Path) -> list[object]:
    """What a search reads."""
    catalog = Catalog(folder)
    weights = {name: value.numpy() for name, value in catalog.embedder.state().items()}
    columns = [catalog.paths, catalog.labels, catalog.sha256]
    return [catalog.about, catalog.vectors(), columns, catalog.means, weights]


def run(name: str, kind: Kind, first: int, count: int, counts: Counts) -> None:
    """Reads the cases `first`, `first` + 1, ... of a kind. Values that differ from those of every valid file
    are a violation unless unnoticed.py names the kind."""
    known: dict[int, set[str]] = {}  # of the valid files, by the place of the reader

    refused = [file for file in kind.refused for _ in kind.readers]

    def case(number: int) -> tuple[str, tuple[int, bytes]]:
        if number < len(refused):
            return str(number), (number, refused[number])
        return str(number), (number, kind.mutate(kind.files, random.Random(f"{name} {number}")))

    def read(content: tuple[int, bytes]) -> None:
        number, octets = content
        place = number % len(kind.readers)
        reader = kind.readers[place]
        if number < len(refused):
            reader(octets)
            raise AssertionError("a file that must be refused is read")
        if name in MAY_CHANGE:
            reader(octets)
            return
        if place not in known:
            known[place] = {fingerprint(reader(file)) for file in kind.files}
        if fingerprint(reader(octets)) not in known[place]:
            raise AssertionError("values changed without notice")

    with tempfile.TemporaryDirectory(prefix="unseen-mutations-") as scratch:
        refusals = (UserError,) if kind.is_own else REFUSALS
        check(map(case, range(first, first + count)), read, Path(scratch), counts, refusals)


def campaign(names: Sequence[str], cases: int, state: Path, cpu_seconds: float) -> None:
    """Extends each kind to `cases` cases (images: ten times as many), or by at most `cpu_seconds`."""
    recorded = results.load(state)
    with tempfile.TemporaryDirectory(prefix="unseen-seeds-") as folder:
        known = kinds(Path(folder))
        for name in names or known:
            kind = known[name]
            result = results.current(recorded, name, kind.modules)
            counts = Counts(**{key: result[key] for key in vars(Counts()) if key in result})
            before = counts.cpu_seconds
            count = cases * kind.factor
            while counts.cases < count and counts.cpu_seconds - before < cpu_seconds:
                run(name, kind, counts.cases, min(CHUNK, count - counts.cases), counts)
                result |= vars(counts)
                results.record(state, name, result)
            print(f"{name}: {counts.cases:,} cases, {len(counts.violations)} violations", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Damaged files of every kind are read or refused.")
    parser.add_argument("kinds", nargs="*", help="some of the kinds; all by default")
    parser.add_argument(
        "--cases", type=int, default=100_000, help="of each kind; of images ten times as many"
    )
    parser.add_argument("--cpu-seconds", type=float, default=float("inf"), help="most for each kind")
    parser.add_argument("--state", type=Path, default=STATE, help="file of the results")
    arguments = parser.parse_args()
    campaign(arguments.kinds, arguments.cases, arguments.state, arguments.cpu_seconds)


if __name__ == "__main__":
    main()
