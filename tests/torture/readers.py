"""The functions of the project that read untrusted input. Each gets the bytes of a file.

A reader returns if the input is valid, and raises ValueError or UserError if it is refused. It writes into
the working directory only.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from unseen.config.document import Params
from unseen.data.decode import decode
from unseen.data.heif import readable
from unseen.data.ingest.completeness import require_complete
from unseen.data.ingest.files.tree import open_archive
from unseen.data.ingest.files.unpickle import load as unpickle
from unseen.data.ingest.prepare import prepare
from unseen.data.ingest.settings import FolderSource
from unseen.data.ingest.sources.folder import collection
from unseen.evaluation.vectors import read_vectors, sides_of
from unseen.experiments.plan.files import plan
from unseen.networks.checkpoint import read_state
from unseen.training.blocks import Damaged
from unseen.training.checkpoint import read as read_checkpoint

# The modules that read each kind of files.
MODULES: dict[str, tuple[str, ...]] = {
    "images": (
        "unseen.data.decode",
        "unseen.data.heif",
        "unseen.data.ingest.completeness",
        "unseen.data.ingest.prepare",
    ),
    "archives": ("unseen.data.ingest.files.tree", "unseen.data.ingest.sources.folder"),
    "CSVs": ("unseen.frozen.labels", "unseen.data.ingest.sources.folder", "unseen.report.report_data"),
    "checkpoints": ("unseen.networks.checkpoint", "unseen.data.ingest.files.unpickle"),
}

_MEMBERS = 50  # of an archive that are read
IDENTITY = "identity"  # of the run in a checkpoint of a training

Read = Callable[[bytes], object]


def read_archive(content: bytes) -> None:
    """An archive of a published set."""
    path = _written("archive", content)
    archive = open_archive(path, Path.cwd())
    for name in archive.names()[:_MEMBERS]:
        archive.read(name)


def read_user_zip(content: bytes) -> None:
    """A zip archive of a user: the list of its classes, and its pictures."""
    pictures = collection(FolderSource(path=str(_written("images.zip", content))))
    for picture in pictures.in_order()[:_MEMBERS]:
        pictures.read(picture.source)


def read_labels(content: bytes) -> None:
    """The CSV of a folder of images."""
    folder = Path("labelled")
    folder.mkdir(exist_ok=True)
    for name in ("a.jpg", "b.jpg"):
        (folder / name).touch()
    (folder / "labels.csv").write_bytes(content)
    collection(FolderSource(path=str(folder), labels="labels.csv"))


def read_params(content: bytes) -> None:
    plan(Params(_written("params.yaml", content)))


def read_training_checkpoint(content: bytes) -> object:
    """The weights and rows of a checkpoint of a training that continues."""
    try:
        state = read_checkpoint(_written("00000001.pt", content), IDENTITY)
    except Damaged as error:
        raise ValueError(str(error)) from error
    weights = {name: value.numpy() for name, value in state["method"].items()}
    return weights, state["rows"]


def read_npy(content: bytes) -> None:
    """Vectors of any tool, with labels in a second file."""
    Path("labels.txt").write_text("a\nb\na\nb\n", encoding="utf-8")
    sides_of(read_vectors(_written("vectors.npy", content), Path("labels.txt")))


def _written(name: str, content: bytes) -> Path:
    path = Path(name)
    path.write_bytes(content)
    return path


def of_file(name: str, read: Callable[[Path], object]) -> Read:
    return lambda content: read(_written(name, content))


def _octets(content: bytes) -> np.ndarray:
    return np.frombuffer(content, np.uint8)


# entry points of the bytes of an image
IMAGES: dict[str, Read] = {
    "decode": lambda content: decode(_octets(content)),  # training, export
    "find": lambda content: decode(_octets(readable(content))),
    "ingest": lambda content: prepare(readable(content), None, 95),
    "ingest, shrunk": lambda content: prepare(readable(content), 16, 95),
    "catalog": lambda content: require_complete(_octets(readable(content))),
}
ARCHIVES: dict[str, Read] = {"published set": read_archive, "folder of a user": read_user_zip}
CHECKPOINTS: dict[str, Read] = {
    ".pth": of_file("weights.pth", read_state),
    ".safetensors": of_file("weights.safetensors", read_state),
    "pickled ground truth": of_file("truth.pkl", lambda path: unpickle(path, "Fetch it again.")),
}
