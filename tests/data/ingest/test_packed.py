"""Images in tables and in archives of WebDataset: the same shards as those of a folder."""

import io
import json
import pickle
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.ingest.pictures import encode, pixels
from unseen.data.ingest.ingest import collection_of, ingest
from unseen.data.ingest.settings import (
    FolderSource,
    IngestSettings,
    OwnSource,
    ParquetSource,
    WebdatasetSource,
)
from unseen.data.shards import Shards
from unseen.runtime.errors import UserError

NAMES = ["kite", "milan", "robin", "wren"]
ROWS = [(c, encode(pixels(100 * c + image))) for image in range(3) for c in range(4)]
IMAGE = pa.struct({"bytes": pa.binary(), "path": pa.string()})


def table(rows: list[tuple[int, bytes]], **columns: Any) -> pa.Table:
    """A table as Hugging Face `datasets` writes it, with the names of a ClassLabel in the schema."""
    images = pa.array([{"bytes": content, "path": None} for _, content in rows], IMAGE)
    features = {"image": {"_type": "Image"}, "label": {"names": NAMES, "_type": "ClassLabel"}}
    content = pa.table({"image": images, "label": [label for label, _ in rows], **columns})
    return content.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def stream(content: pa.Table, path: Path) -> None:
    """Writes a table as `save_to_disk` does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, content.schema) as writer:
        writer.write_table(content, max_chunksize=5)


def tar(path: Path, members: dict[str, bytes], mode: str = "w") -> None:
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def members(rows: list[tuple[int, bytes]], first: int = 0) -> dict[str, bytes]:
    named: dict[str, bytes] = {}
    for number, (label, content) in enumerate(rows, first):
        named |= {
            f"{number:04d}.jpg": content,
            f"{number:04d}.cls": str(dict(enumerate(NAMES)).get(label, label)).encode(),
        }
    return named


def contents(source: OwnSource, output: Path) -> list[tuple[str, str, bytes]]:
    """Class, split and bytes of every image of the shards, sorted."""
    ingest(source, IngestSettings(), output, "mine", 1)
    shards = Shards(output, verify=True)
    index = pq.read_table(output / "index.parquet").to_pylist()
    return sorted((row["class_name"], row["split"], shards.image(row["row_id"]).tobytes()) for row in index)


@pytest.fixture
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch")


@pytest.fixture
def expected(tmp_path: Path) -> list[tuple[str, str, bytes]]:
    for number, (label, content) in enumerate(ROWS):
        path = tmp_path / "folder" / NAMES[label] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return contents(FolderSource(path=str(tmp_path / "folder")), tmp_path / "of folder")


def test_tables_give_the_shards_of_a_folder(tmp_path: Path, expected: list[Any]) -> None:
    hub, saved, paths = (tmp_path / name for name in ("hub", "saved", "folder"))
    hub.mkdir()
    pq.write_table(table(ROWS[:5]), hub / "train-00000-of-00002.parquet")
    pq.write_table(table(ROWS[5:]), hub / "train-00001-of-00002.parquet")
    stream(table(ROWS), saved / "data-00000-of-00001.arrow")
    (saved / "cache-0123.arrow").write_bytes(b"not read")
    (saved / "state.json").write_text("{}")
    names = [f"{NAMES[label]}/{number}.jpg" for number, (label, _) in enumerate(ROWS)]
    of_paths = pa.table({"photo": names, "species": [NAMES[label] for label, _ in ROWS]})
    pq.write_table(of_paths, paths / "list.parquet")
    for number, source in enumerate(
        [
            ParquetSource(path=str(hub)),
            ParquetSource(path=str(saved)),
            ParquetSource(path=str(saved / "data-00000-of-00001.arrow")),
            ParquetSource(path=str(paths), images="photo", labels="species"),
        ]
    ):
        assert contents(source, tmp_path / str(number)) == expected, source
    manifest = json.loads((tmp_path / "1" / "manifest.json").read_text())
    assert manifest["other_file_names"] == ["cache-0123.arrow", "state.json"]


@pytest.mark.parametrize("suffix", ["tar", "tar.gz"])
def test_archives_give_the_shards_of_a_folder(tmp_path: Path, expected: list[Any], suffix: str) -> None:
    root, mode = tmp_path / "set", "w:gz" if suffix == "tar.gz" else "w"
    for part, rows, first in (("a", ROWS[:7], 0), ("b", ROWS[7:], 0)):  # equal keys in two archives
        (root / part).mkdir(parents=True)
        tar(root / part / f"000.{suffix}", members(rows, first), mode)
    source = WebdatasetSource(path=str(root))
    assert contents(source, tmp_path / "out") == expected


def test_labels_and_splits_of_json(tmp_path: Path, scratch: Path) -> None:
    lines = {
        f"{number}.json": json.dumps(
            {"species": NAMES[label], "split": ("train", "test")[label // 2]}
        ).encode()
        for number, (label, _) in enumerate(ROWS)
    }
    images = {f"{number}.seg.png": b"no image" for number in range(12)}
    images |= {f"{number}.jpg": content for number, (_, content) in enumerate(ROWS)}
    tar(tmp_path / "x.tar", images | lines)
    source = WebdatasetSource(path=str(tmp_path / "x.tar"), labels="json.species")
    pictures = collection_of(source, scratch).pictures
    assert {(p.class_name, p.split) for p in pictures} == {
        ("kite", "train"),
        ("milan", "train"),
        ("robin", "test"),
        ("wren", "test"),
    }
    assert len(pictures) == 12


def test_splits_of_files(tmp_path: Path) -> None:
    for name, labels in (("train", (0, 1)), ("validation", (2, 3)), ("test", (4, 5))):
        rows = [(label, ROWS[0][1]) for label in labels for _ in range(2)]
        stream(table(rows), tmp_path / name / "data-00000-of-00001.arrow")
    collection = collection_of(ParquetSource(path=str(tmp_path), split="files"), tmp_path)
    splits = {picture.class_name: picture.split for picture in collection.pictures}
    assert splits == dict.fromkeys(NAMES, "train") | {"4": "test", "5": "test"}
    assert pickle.loads(pickle.dumps(collection.read))(collection.pictures[0].source) == ROWS[0][1]
    stream(table([(0, ROWS[0][1])]), tmp_path / "other" / "data.arrow")
    with pytest.raises(UserError, match=r"data\.arrow: the name does not begin with train, val, test"):
        collection_of(ParquetSource(path=str(tmp_path), split="files"), tmp_path)


def test_flags_of_sides(tmp_path: Path) -> None:
    flags = [number % 3 > 0 for number in range(12)]
    pq.write_table(table(ROWS, is_query=flags, split=["test"] * 12), tmp_path / "x.parquet")
    pictures = collection_of(ParquetSource(path=str(tmp_path)), tmp_path).pictures
    assert [picture.is_query for picture in pictures] == flags
    assert all(picture.is_gallery and picture.split == "test" for picture in pictures)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"image": [b"x"]}, "x.parquet has 0 columns label; its columns are image"),
        ({"image": [b"x"], "label": [None]}, "x.parquet: 000000000: the label is None"),
        ({"image": [b"x"], "label": [1.5]}, r"the label is 1\.5"),
        ({"image": ["../secret.jpg"], "label": [1]}, r"the image of row 0 is '\.\./secret\.jpg'"),
        ({"image": ["/etc/passwd"], "label": [1]}, "the image of row 0 is '/etc/passwd'"),
        ({"image": pa.array([None], pa.binary()), "label": [1]}, "the image of row 0 is None"),
        ({"image": [b"x"], "label": [1], "split": ["val"]}, "unknown split 'val'"),
    ],
)
def test_refuses_a_table(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    with pytest.raises(UserError, match=message):
        collection_of(ParquetSource(path=str(tmp_path)), tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"../a.jpg": b"x"}, r"member '\.\./a\.jpg' leaves the folder"),
        ({"a.jpg": b"x"}, r"x\.tar: a\.jpg: the label is None"),
        ({"a.jpg": b"x", "a.cls": b"\xff"}, r"a\.cls is not text or not JSON"),
        ({"a.jpg": b"x", "a.json": b"[1]"}, r"a\.json is not an object of JSON"),
        ({"a.jpg": b"x", "a.json": b"{"}, r"a\.json is not text or not JSON"),
        ({"\udcff.jpg": b"x", "\udcff.cls": b"1"}, r"x\.tar: the name '\\udcff\.jpg' is not valid UTF-8"),
    ],
)
def test_refuses_an_archive(tmp_path: Path, scratch: Path, content: dict[str, bytes], message: str) -> None:
    tar(tmp_path / "x.tar", content)
    with pytest.raises(UserError, match=message):
        collection_of(WebdatasetSource(path=str(tmp_path)), scratch)


@pytest.mark.parametrize("source", [ParquetSource, WebdatasetSource])
def test_a_damaged_or_absent_file_is_one_line(tmp_path: Path, scratch: Path, source: type[Any]) -> None:
    name = "x.parquet" if source is ParquetSource else "x.tar"
    with pytest.raises(UserError, match="contains no file with the suffix"):
        collection_of(source(path=str(tmp_path)), tmp_path)
    (tmp_path / name).write_bytes(b"damaged")
    with pytest.raises(UserError) as raised:
        collection_of(source(path=str(tmp_path)), scratch)
    assert name in raised.value.what
    assert "\n" not in raised.value.what
    with pytest.raises(UserError, match="does not exist"):
        collection_of(source(path=str(tmp_path / "nowhere")), tmp_path)
