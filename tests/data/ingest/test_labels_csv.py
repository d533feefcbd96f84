"""Properties of the CSV that names the classes of a user's images: any file is read or refused."""

import csv
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unseen.data.ingest.collection import Collection
from unseen.data.ingest.settings import FolderSource
from unseen.data.ingest.sources.folder import collection
from unseen.data.labels import normal
from unseen.data.shard_schema import SPLITS
from unseen.runtime.errors import UserError

NAMES = ("birds/1.jpg", "birds/2.jpg", "fish/a b.png", "fish/é,1.jpg", "0.jpg")
COLUMNS = ("path", "label", "split", "is_query", "is_gallery")
PIECES = (
    *NAMES,
    *COLUMNS,
    *SPLITS,
    "yes",
    "no",
    "../0.jpg",
    ",",
    "\n",
    "\r",
    "\r\n",
    '"',
    ";",
    "\t",
    "\0",
    " ",
    "\ufeff",
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("labels")
    for name in NAMES:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(b"")
    return root


def read(root: Path, content: bytes) -> Collection | None:
    """The collection of labels.csv with this content; None if it is refused."""
    (root / "labels.csv").write_bytes(content)
    try:
        return collection(FolderSource(path=str(root), labels="labels.csv"))
    except UserError:
        return None


def check(found: Collection | None) -> None:
    if found is not None:
        sources = [picture.source for picture in found.pictures]
        assert len(set(sources)) == len(sources)
        assert set(sources) <= {*NAMES, "labels.csv"}
        for picture in found.pictures:
            assert picture.split in SPLITS
            assert picture.class_name.strip() == picture.class_name != ""


TABLES = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)
HEAD = st.sampled_from(["path,label\n", "path,label,split\n", "path,label,split,is_query,is_gallery\r\n"])


@pytest.mark.slow
@given(
    content=st.one_of(
        st.binary(max_size=40), st.tuples(HEAD, TABLES | st.text()).map("".join).map(str.encode)
    )
)
@settings(max_examples=150)
def test_any_file_is_read_or_refused(root: Path, content: bytes) -> None:
    check(read(root, content))


@given(size=st.sampled_from([10, 131_072, 131_073]), cell=st.sampled_from(["path", "label", "header"]))
def test_a_cell_of_any_size_is_read_or_refused(root: Path, size: int, cell: str) -> None:
    long = "x" * size
    line = {"path": f"{long},red", "label": f"0.jpg,{long}", "header": "0.jpg,red"}[cell]
    header = f"path,label,{long}" if cell == "header" else "path,label"
    check(read(root, f"{header}\n{line}\n".encode()))


# What a label is: text that UTF-8 can encode, without space at its ends, in form NFC.
LABELS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).map(normal).filter(bool)


@pytest.mark.slow
@given(
    names=st.lists(st.sampled_from(NAMES), unique=True, min_size=1),
    classes=st.lists(LABELS, unique=True, min_size=1, max_size=3),
    data=st.data(),
)
@settings(max_examples=60)
def test_a_written_table_is_read_as_it_was_written(
    root: Path, names: list[str], classes: list[str], data: st.DataObject
) -> None:
    split_of = {name: data.draw(st.sampled_from(SPLITS)) for name in classes}
    expected: list[tuple[Any, ...]] = []
    for name in names:
        label = data.draw(st.sampled_from(classes))
        expected.append((name, label, split_of[label], data.draw(st.booleans()), data.draw(st.booleans())))
    with open(root / "labels.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for *words, is_query, is_gallery in expected:
            writer.writerow([*words, *(str(flag).lower() for flag in (is_query, is_gallery))])
    pictures = read(root, (root / "labels.csv").read_bytes())
    assert pictures is not None
    assert [
        (p.source, p.class_name, p.split, p.is_query, p.is_gallery) for p in pictures.pictures
    ] == expected
