"""Revisited Oxford and Paris: queries with boxes, a database, ground truth as row ids, and refusal of invalid
files."""

import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.ingest.pictures import encode, pixels
from unseen.data.ingest.ingest import ingest
from unseen.data.ingest.settings import IngestSettings, RoxfordSource, RparisSource
from unseen.data.ingest.sources import revisited
from unseen.data.shards import Shards
from unseen.runtime.errors import UserError

PUBLISHED = (dict(revisited.DATABASE), revisited.QUERIES)
SOURCES: dict[str, Any] = {"roxford5k": RoxfordSource, "rparis6k": RparisSource}
DATABASE = ["keble_000002", "all_souls_000001", "ashmolean_000009", "keble_000001", "bodleian_000003"]
QUERIES = ["all_souls_000013", "keble_000245"]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revisited, "DATABASE", {"roxford5k": 5, "rparis6k": 5})
    monkeypatch.setattr(revisited, "QUERIES", 2)


def truth() -> dict[str, Any]:
    return {
        "imlist": list(DATABASE),
        "qimlist": list(QUERIES),
        "gnd": [
            {"bbx": [3.5, 2.0, 30.25, 28.0], "easy": [1], "hard": [], "junk": [4, 2]},
            {
                "bbx": np.array([-1.0, 0.0, 40.5, 30.0]),
                "easy": np.array([], np.int64),
                "hard": np.array([0, 3]),
                "junk": np.array([]),
            },
        ],
    }


def write(
    root: Path, value: Any = None, kind: str = "roxford5k", images: str = "jpg", protocol: int = 2
) -> Path:
    root.mkdir(parents=True)
    (root / f"gnd_{kind}.pkl").write_bytes(pickle.dumps(truth() if value is None else value, protocol))
    for number, name in enumerate(DATABASE + QUERIES):
        (root / images).mkdir(exist_ok=True, parents=True)
        (root / images / f"{name}.jpg").write_bytes(encode(pixels(number)))
    return root


def run(root: Path, output: Path, kind: str = "roxford5k", **settings: Any) -> dict[str, Any]:
    return ingest(SOURCES[kind](path=str(root)), IngestSettings(**settings), output, kind, 1)


def test_published_counts() -> None:
    assert PUBLISHED == ({"roxford5k": 4_993, "rparis6k": 6_322}, 70)


@pytest.mark.parametrize("kind", ["roxford5k", "rparis6k"])
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_reads_queries_database_and_ground_truth(tmp_path: Path, kind: str, protocol: int) -> None:
    manifest = run(write(tmp_path / "raw", kind=kind, protocol=protocol), tmp_path / "out", kind)
    shards = Shards(tmp_path / "out", verify=True)
    assert manifest["counts"] == {"train": {"images": 0, "classes": 0}, "test": {"images": 7, "classes": 1}}
    assert "single_image_classes" not in manifest
    assert shards.sources == sorted(f"{name}.jpg" for name in DATABASE + QUERIES)
    queries = [f"{name}.jpg" for name in QUERIES]
    assert [shards.sources[row] for row in np.flatnonzero(shards.is_query)] == queries
    assert np.array_equal(shards.is_gallery, ~shards.is_query)
    rows = {source: row for row, source in enumerate(shards.sources)}
    assert shards.box(rows[queries[0]]) == (3.5, 2.0, 30.25, 28.0)
    assert shards.box(rows[queries[1]]) == (-1.0, 0.0, 40.5, 30.0), "a box may extend beyond the image"
    assert shards.box(rows["keble_000001.jpg"]) is None
    table = shards.extra("ground_truth")
    assert table.schema.names == ["query", "easy", "hard", "junk"]
    assert [str(kind) for kind in table.schema.types] == ["int64", *3 * ["list<element: int64>"]]
    names, kinds = np.array(shards.sources), ("easy", "hard", "junk")
    images = [[names[row[kind]].tolist() if row[kind] else [] for kind in kinds] for row in table.to_pylist()]
    assert images == [
        [["all_souls_000001.jpg"], [], ["bodleian_000003.jpg", "ashmolean_000009.jpg"]],
        [[], ["keble_000002.jpg", "keble_000001.jpg"], []],
    ]
    assert names[table["query"].to_numpy()].tolist() == queries


def test_reads_the_archives_of_paris_and_counts_other_images(tmp_path: Path) -> None:
    root = write(tmp_path / "raw", kind="rparis6k")
    for archive, part in (("paris_1-v1.tgz", slice(0, 4)), ("paris_2-v1.tgz", slice(4, None))):
        with tarfile.open(root / archive, "w:gz") as file:
            for path in sorted((root / "jpg").iterdir())[part]:
                file.add(path, f"paris/{path.name.partition('_')[0]}/{path.name}")
    (root / "jpg" / "paris_louvre_000136.jpg").write_bytes(b"damaged, as published")
    run(root, tmp_path / "first", "rparis6k")
    for path in (root / "jpg").iterdir():
        path.unlink()
    (root / "jpg").rmdir()
    manifest = run(root, tmp_path / "second", "rparis6k")
    assert manifest["other_images"] == 0
    assert Shards(tmp_path / "first").manifest["other_images"] == 1
    for name in ("shard-00000.arrow", "index.parquet", "ground_truth.parquet"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


def test_boxes_shrink_with_their_images(tmp_path: Path) -> None:
    run(write(tmp_path / "raw"), tmp_path / "out", resize=15)
    shards = Shards(tmp_path / "out")
    assert shards.sizes[0].tolist() == [20, 15]
    row = shards.sources.index("all_souls_000013.jpg")
    assert shards.box(row) == (1.75, 1.0, 15.125, 14.0)


@pytest.mark.parametrize(
    "box",
    [[50.0, 2.0, 60.0, 28.0], [5.0, 2.0, 5.0, 28.0], [30.0, 2.0, 3.5, 28.0], [0.0, 0.0, float("nan"), 9.0]],
)
def test_refuses_a_box_outside_its_image(tmp_path: Path, box: list[float]) -> None:
    value = truth()
    value["gnd"][0]["bbx"] = box
    expected = r"all_souls_000013\.jpg: the box \(.*\) is not within the 40 x 30 picture"
    with pytest.raises(UserError, match=expected):
        run(write(tmp_path / "raw", value), tmp_path / "out")


def test_refuses_a_missing_pickle(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    expected = (
        r"(?s)raw contains no gnd_rparis6k\.pkl\..*paris_1-v1\.tgz and paris_2-v1\.tgz.*revisitop/.*"
        r"blurred"
    )
    with pytest.raises(UserError, match=expected):
        run(tmp_path / "raw", tmp_path / "out", "rparis6k")


def test_refuses_a_malicious_pickle(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {tmp_path}/created",)

    value = truth()
    value["gnd"][1]["junk"] = [Bomb()]
    with pytest.raises(UserError, match=r"gnd_roxford5k\.pkl was not read: it refers to posix\.system"):
        run(write(tmp_path / "raw", value), tmp_path / "out")
    assert not (tmp_path / "created").exists()


@pytest.mark.parametrize("missing", ["keble_000001", "keble_000245"])
def test_refuses_a_missing_image(tmp_path: Path, missing: str) -> None:
    root = write(tmp_path / "raw")
    (root / "jpg" / f"{missing}.jpg").unlink()
    with pytest.raises(UserError, match=rf"lacks 1 of the images that gnd_roxford5k\.pkl names: {missing}"):
        run(root, tmp_path / "out")


def test_refuses_to_exclude_a_damaged_image(tmp_path: Path) -> None:
    root = write(tmp_path / "raw")
    (root / "jpg" / "bodleian_000003.jpg").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"its ground truth names bodleian_000003\.jpg, which was excluded"):
        run(root, tmp_path / "out", on_error="skip")


def changed(query: int | None = None, **changes: Any) -> dict[str, Any]:
    value = truth()
    (value if query is None else value["gnd"][query]).update(changes)
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("text", r"pkl has no 'imlist'; found: str"),
        (
            changed(imlist=DATABASE[:4]),
            "found 4 database images, 2 queries and 2 ground truths; expected 5, 2 and 2",
        ),
        (changed(qimlist=QUERIES[:1]), "is not Revisited Oxford: found 5 database images, 1 queries"),
        (changed(gnd=truth()["gnd"][:1]), "and 1 ground truths"),
        (changed(gnd={"0": 1}), r"\['gnd'\] is not a list"),
        (changed(imlist=[*DATABASE[:4], DATABASE[0]]), r"\['imlist'\] contains 'keble_000002' 2 times"),
        (changed(qimlist=[QUERIES[0], DATABASE[0]]), "keble_000002 is a query and a database image"),
        (changed(0, easy=[5]), r"\['gnd'\]\[0\]\['easy'\] has values from 5 to 5, expected 0 to 4"),
        (changed(0, easy=["1"]), r"\['easy'\] is not a list of integers"),
        (changed(1, hard=np.array([0.0, 3.0])), r"\['gnd'\]\[1\]\['hard'\] is not a list of integers"),
        (changed(0, hard=[1]), r"\['gnd'\]\[0\]: an image is in easy, hard and junk more than once"),
        (changed(0, bbx=[1.0, 2.0, 3.0]), r"\['bbx'\] is not a list of 4 numbers"),
        (changed(0, bbx=None), r"\['bbx'\] is not a list of 4 numbers"),
        (
            changed(gnd=[{"bbx": [0.0, 0.0, 9.0, 9.0], "ok": [1], "junk": []}] * 2),
            r"\['gnd'\]\[0\] has no 'easy'; found: keys bbx, ok, junk",
        ),
    ],
)
def test_refuses_a_wrong_structure(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        run(write(tmp_path / "raw", value), tmp_path / "out")
    assert not (tmp_path / "out").exists()
