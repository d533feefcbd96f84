"""Images of a user in tar archives of WebDataset: the members of one image are adjacent and have one key.

birds-000.tar    0001.jpg   0001.cls: 17     or     0001.jpg   0001.json: {"label": "kite", "split": "test"}
"""

import json
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from unseen.data.ingest.collection import Collection
from unseen.data.ingest.files.archive import is_hidden
from unseen.data.ingest.files.tree import open_archive
from unseen.data.ingest.settings import WebdatasetSource
from unseen.data.ingest.sources.folder import SUFFIXES
from unseen.data.ingest.sources.packed import Packed
from unseen.runtime.errors import UserError

ARCHIVES = (".tar", ".tar.gz", ".tgz")


def collection(source: WebdatasetSource, scratch: Path) -> Collection:
    """The images of all archives. Raises UserError for an archive that is damaged or has a member that leaves
    its folder (tarball.py), and for an image without a label."""
    packed = Packed(source, ARCHIVES)
    member_of_label, _, value = source.labels.partition(".")
    for number, shard in enumerate(packed.shards):
        path, own = packed.path(shard), scratch / str(number)
        own.mkdir()  # two archives of one name, in two folders
        archive = open_archive(path, own)
        for name in filter(lambda name: not is_hidden(name), archive.names()):
            key, suffix = _key(name)
            if f".{suffix}" not in SUFFIXES:
                continue
            values: dict[str, Any] = {}
            for member in dict.fromkeys(("json", member_of_label)):
                if f"{key}.{member}" in archive:
                    values |= _values(path, f"{key}.{member}", archive.read(f"{key}.{member}"))
            values["label"] = values.get(value or "label")
            packed.add(shard, name, values, partial(archive.read, name))
    return packed.collection()


def listed(source: WebdatasetSource) -> Collection | None:
    """The images as a list of which none can be read; None if an archive must be inflated first. Raises as
    `collection` does."""
    if not all(name.lower().endswith(".tar") for name in Packed(source, ARCHIVES).shards):
        return None
    with TemporaryDirectory() as scratch:
        return collection(source, Path(scratch))


def _key(name: str) -> tuple[str, str]:
    """`a/0001` and `seg.png` of `a/0001.seg.png`: the key ends at the first dot of the file name."""
    folder, slash, file = name.rpartition("/")
    key, _, suffix = file.partition(".")
    return f"{folder}{slash}{key}", suffix.lower()


def _values(path: Path, name: str, content: bytes) -> dict[str, Any]:
    """The values of a member `json`, or the text of another one as `label`."""
    try:
        text = content.decode()
        values = json.loads(text) if name.endswith(".json") else {"label": text}
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: {name} is not text or not JSON: {error}.", "Pack it again.") from None
    if not isinstance(values, dict):
        raise UserError(f"{path}: {name} is not an object of JSON.", "Pack it again.")
    return values
