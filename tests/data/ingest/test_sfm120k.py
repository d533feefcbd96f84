"""retrieval-SfM-120k: paths of the images, models as classes, pairs as row ids, and refusal of invalid
files."""

import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.ingest.pictures import encode, pixels
from unseen.data.ingest.census import Count
from unseen.data.ingest.ingest import ingest
from unseen.data.ingest.settings import IngestSettings, Sfm120kSource
from unseen.data.ingest.sources import sfm120k
from unseen.data.shards import Shards
from unseen.runtime.errors import UserError

PUBLISHED = dict(sfm120k.COUNTS)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sfm120k, "COUNTS", {"train": Count(9, 3), "test": Count(4, 2)})


def cid(number: int) -> str:
    return f"{number * 0x9E3779B97F4A7C15 % 2**128:032x}"


def database() -> dict[str, Any]:
    """Three train models of three images, two validation models of two; images of a model are not
    adjacent."""
    return {
        "train": {
            "cids": [cid(n) for n in range(1, 10)],
            "cluster": [5, 7, 5, 9, 7, 9, 5, 7, 9],
            "qidxs": [0, 0, 1, 3],
            "pidxs": [2, 6, 4, 8],
        },
        "val": {
            "cids": [cid(n) for n in range(11, 15)],
            "cluster": [5, 8, 5, 8],
            "qidxs": [0, 3],
            "pidxs": [2, 1],
        },
    }


def write(root: Path, value: Any = None, images: str = "ims", protocol: int = 2) -> Path:
    root.mkdir(parents=True)
    (root / "retrieval-SfM-120k.pkl").write_bytes(
        pickle.dumps(database() if value is None else value, protocol)
    )
    for number in [*range(1, 10), *range(11, 15)]:
        path = root / images / sfm120k.path_of(cid(number))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(pixels(number)))
    return root


def run(root: Path, output: Path, processes: int = 1, **settings: Any) -> dict[str, Any]:
    return ingest(Sfm120kSource(path=str(root)), IngestSettings(**settings), output, "sfm120k", processes)


def test_published_counts_and_paths() -> None:
    assert PUBLISHED == {"train": (91_642, 551), "test": (6_403, 162)}
    assert sfm120k.path_of("0123456789abcdef") == "ef/cd/ab/0123456789abcdef"


def test_reads_images_models_and_pairs(tmp_path: Path) -> None:
    manifest = run(write(tmp_path / "raw"), tmp_path / "out")
    shards = Shards(tmp_path / "out", verify=True)
    assert shards.class_names == ["train/00005", "train/00007", "train/00009", "val/00005", "val/00008"]
    assert shards.groups == [shards.class_names[label] for label in shards.labels]
    assert shards.splits.tolist() == ["train"] * 9 + ["test"] * 4
    assert manifest["published"] == "retrieval-SfM-120k"
    assert manifest["pairs"] == {"train": 4, "test": 2}
    assert manifest["pairs_across_models"] == {"train": 0, "test": 0}
    pairs = shards.extra("pairs")
    assert pairs.schema.names == ["split", "query", "positive"]
    assert [str(kind) for kind in pairs.schema.types] == ["string", "int64", "int64"]
    sources = [
        (row["split"], shards.sources[row["query"]], shards.sources[row["positive"]])
        for row in pairs.to_pylist()
    ]
    path = sfm120k.path_of
    assert sources == [
        ("train", path(cid(1)), path(cid(3))),
        ("train", path(cid(1)), path(cid(7))),
        ("train", path(cid(2)), path(cid(5))),
        ("train", path(cid(4)), path(cid(9))),
        ("test", path(cid(11)), path(cid(13))),
        ("test", path(cid(14)), path(cid(12))),
    ]
    row = shards.sources.index(path(cid(4)))
    assert shards.image(row).tobytes() == encode(pixels(4))
    assert shards.class_names[shards.labels[row]] == "train/00009"


def test_archive_and_folder_give_equal_bytes_from_lists_or_arrays(tmp_path: Path) -> None:
    run(write(tmp_path / "folder"), tmp_path / "first")
    arrays = {
        name: {key: np.array(value) for key, value in part.items()} for name, part in database().items()
    }
    raw = write(tmp_path / "packed", arrays, images="elsewhere", protocol=4)
    with tarfile.open(raw / "ims.tar.gz", "w:gz") as archive:
        for path in sorted((raw / "elsewhere").iterdir()):
            archive.add(path, f"./{path.name}")
    for path in sorted((raw / "elsewhere").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    run(raw, tmp_path / "second")
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("first", "second")
    )
    assert sorted(first) == ["index.parquet", "manifest.json", "pairs.parquet", "shard-00000.arrow"]
    first.pop("manifest.json"), second.pop("manifest.json")
    assert first == second


def test_counts_pairs_across_models(tmp_path: Path) -> None:
    value = database()
    value["train"]["pidxs"][1] = 4
    manifest = run(write(tmp_path / "raw", value), tmp_path / "out")
    assert manifest["pairs_across_models"] == {"train": 1, "test": 0}


def test_refuses_a_missing_pickle(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    expected = (
        r"(?s)raw contains no retrieval-SfM-120k\.pkl\..*ims\.tar\.gz.*"
        r"cmp\.felk\.cvut\.cz/cnnimageretrieval"
    )
    with pytest.raises(UserError, match=expected):
        run(tmp_path / "raw", tmp_path / "out")


def test_refuses_a_malicious_pickle(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {tmp_path}/created",)

    with pytest.raises(UserError, match=r"retrieval-SfM-120k\.pkl was not read: it refers to posix\.system"):
        run(write(tmp_path / "raw", database() | {"meta": [Bomb()]}), tmp_path / "out")
    assert not (tmp_path / "created").exists()


def test_refuses_missing_images(tmp_path: Path) -> None:
    root = tmp_path / "raw"
    root.mkdir()
    (root / "retrieval-SfM-120k.pkl").write_bytes(pickle.dumps(database()))
    with pytest.raises(UserError, match=r"contains neither ims\.tar\.gz nor 15/7c/4a/"):
        run(root, tmp_path / "out")


def test_refuses_a_missing_image(tmp_path: Path) -> None:
    root = write(tmp_path / "raw")
    (root / "ims" / sfm120k.path_of(cid(12))).unlink()
    expected = rf"1 of the files .*retrieval-SfM-120k\.pkl are missing: .*{cid(12)}"
    with pytest.raises(UserError, match=expected):
        run(root, tmp_path / "out")


def test_refuses_to_exclude_a_damaged_image_of_a_pair(tmp_path: Path) -> None:
    root = write(tmp_path / "raw")
    (root / "ims" / sfm120k.path_of(cid(3))).write_bytes(b"no image")
    with pytest.raises(UserError, match=rf"its ground truth names .*{cid(3)}, which was excluded"):
        run(root, tmp_path / "out", on_error="skip")


def changed(part: str, **changes: Any) -> dict[str, Any]:
    value = database()
    value[part] |= changes
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1], r"pkl has no 'train'; found: list"),
        ({"train": database()["train"]}, r"pkl has no 'val'; found: keys train"),
        (changed("val", cids=3), r"\['val'\]\['cids'\] is not a list of names"),
        (changed("val", cids=[cid(11)] * 4), r"\['val'\]\['cids'\] contains '[0-9a-f]{32}' 4 times"),
        (changed("val", cids=[cid(1), *(cid(n) for n in (12, 13, 14))]), "an image is in both parts"),
        (
            changed("val", cids=["../../../passwd", *(cid(n) for n in (12, 13, 14))]),
            r"\['cids'\] contains '\.\./",
        ),
        (
            changed("val", cids=["ab....", *(cid(n) for n in (12, 13, 14))]),
            r"\['cids'\] contains 'ab\.\.\.\.'",
        ),
        (changed("val", cluster=[5, 8, 5]), "has 4 cids and 3 clusters"),
        (changed("val", cluster=[5, 8, 5, None]), r"\['cluster'\] is not a list of integers"),
        (changed("val", pidxs=[2]), "2 qidxs and 1 pidxs"),
        (changed("val", pidxs=[2, 4]), r"\['pidxs'\] has values from 2 to 4, expected 0 to 3"),
        (changed("val", qidxs=[-1, 3]), r"\['qidxs'\] has values from -1 to 3"),
        (
            changed("val", cluster=[5, 8, 5, 9]),
            "found 9 train images of 3 classes, 4 test images of 3 classes",
        ),
    ],
)
def test_refuses_a_wrong_structure(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        run(write(tmp_path / "raw", value), tmp_path / "out")
    assert not (tmp_path / "out").exists()
