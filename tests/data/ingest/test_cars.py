"""Cars-196 in both published layouts: the split by class, the ignored test flag, and missing files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.ingest import miniatures
from unseen.data.ingest.census import Count
from unseen.data.ingest.files.tree import Tree
from unseen.data.ingest.ingest import ingest
from unseen.data.ingest.releases import PUBLISHED
from unseen.data.ingest.settings import CarsSource, IngestSettings
from unseen.data.ingest.sources import cars
from unseen.data.shards import Shards
from unseen.runtime.errors import UserError


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cars, "COUNTS", {"train": Count(8, 2), "test": Count(8, 2)})
    monkeypatch.setattr(cars, "LAST_TRAIN_CLASS", 2)


def run(path: Path, output: Path, processes: int = 1) -> dict[str, Any]:
    return ingest(CarsSource(path=str(path)), IngestSettings(), output, "cars", processes)


def first_layout(folder: Path) -> Path:
    files, annotations = miniatures.cars()
    miniatures.tgz(files, folder / "car_ims.tgz")
    (folder / "cars_annos.mat").write_bytes(annotations)
    return folder


def second_layout(folder: Path) -> Path:
    train, test, devkit, labels = miniatures.cars_in_two_halves()
    for name, files in (("cars_train", train), ("cars_test", test), ("car_devkit", devkit)):
        miniatures.tgz(files, folder / f"{name}.tgz")
    (folder / "cars_test_annos_withlabels.mat").write_bytes(labels)
    return folder


@pytest.mark.slow
def test_splits_the_first_layout_by_class_and_ignores_its_test_flag(tmp_path: Path) -> None:
    run(first_layout(tmp_path / "packed"), tmp_path / "out", processes=2)
    shards = Shards(tmp_path / "out", verify=True)
    assert shards.manifest["published"] == "Cars-196"
    assert shards.class_names == [f"{number:03d}.{name}" for number, name in enumerate(miniatures.CARS, 1)]
    assert shards.sources == [f"car_ims/{number:06d}.jpg" for number in range(1, 17)]
    assert shards.splits.tolist() == ["train"] * 8 + ["test"] * 8
    files, annotations = miniatures.cars()
    miniatures.unpack(files | {"cars_annos.mat": annotations}, tmp_path / "unpacked")
    run(tmp_path / "unpacked", tmp_path / "out2")
    assert Shards(tmp_path / "out2").fingerprint == shards.fingerprint


def test_both_layouts_give_the_same_set(tmp_path: Path) -> None:
    run(first_layout(tmp_path / "first"), tmp_path / "out")
    run(second_layout(tmp_path / "second"), tmp_path / "out2")
    first, second = Shards(tmp_path / "out"), Shards(tmp_path / "out2")
    assert second.class_names == first.class_names
    assert second.splits.tolist() == first.splits.tolist()
    for label in range(4):
        pictures = [
            {shards.image(int(row)).tobytes() for row in np.flatnonzero(shards.labels == label)}
            for shards in (first, second)
        ]
        assert pictures[0] == pictures[1]
    assert {source.split("/")[0] for source in second.sources} == {"cars_train", "cars_test"}


def test_reads_folders_within_folders_of_the_same_name(tmp_path: Path) -> None:
    train, test, devkit, labels = miniatures.cars_in_two_halves()
    miniatures.unpack(train, tmp_path / "raw/cars_train")
    miniatures.unpack(test, tmp_path / "raw/cars_test")
    miniatures.unpack(devkit | {"cars_test_annos_withlabels.mat": labels}, tmp_path / "raw")
    assert run(tmp_path / "raw", tmp_path / "out")["counts"]["train"] == {"images": 8, "classes": 2}


def test_names_a_missing_file_with_its_hash(tmp_path: Path) -> None:
    folder = first_layout(tmp_path / "a")
    (folder / "car_ims.tgz").unlink()
    expected = (
        r"(?s)contains no car_ims/000001\.jpg.*car_ims\.tgz \(md5 d5c8f0aa.*removed in 2023.*"
        r"issues/7545"
    )
    with pytest.raises(UserError, match=expected):
        run(folder, tmp_path / "out")
    folder = second_layout(tmp_path / "b")
    (folder / "cars_test_annos_withlabels.mat").unlink()
    expected = (
        r"(?s)no cars_test_annos_withlabels\.mat \(cars_test_annos\.mat .* has no classes\).*"
        r"185,758 bytes"
    )
    with pytest.raises(UserError, match=expected):
        run(folder, tmp_path / "out")
    (folder / "car_devkit.tgz").unlink()
    with pytest.raises(UserError, match=r"neither cars_annos\.mat nor the devkit"):
        run(folder, tmp_path / "out")


def test_refuses_missing_images_and_other_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, annotations = miniatures.cars()
    del files["car_ims/000009.jpg"]
    expected = r"1 of the files listed in the annotations are missing: car_ims/000009\.jpg"
    with pytest.raises(UserError, match=expected):
        run(miniatures.unpack(files | {"cars_annos.mat": annotations}, tmp_path / "raw"), tmp_path / "out")
    monkeypatch.setattr(cars, "COUNTS", {"train": Count(8_054, 98), "test": Count(8_131, 98)})
    expected = r"not Cars-196: found 8 train images of 2 classes.*expected 8,054 train images of 98 classes"
    with pytest.raises(UserError, match=expected):
        run(tmp_path / "raw", tmp_path / "out")


def _annotations(**changes: object) -> bytes:
    rows = [
        {"relative_im_path": f"car_ims/{number:06d}.jpg", "class": np.uint8(1)} | changes
        for number in range(3)
    ]
    return miniatures.mat(annotations=miniatures.annotations(rows), class_names=miniatures.class_names())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"this is not a MAT file", r"cars_annos\.mat is not a readable MAT file"),
        (miniatures.cars()[1][:500], r"cars_annos\.mat is not a readable MAT file"),
        (miniatures.mat(class_names=miniatures.class_names()), r"cars_annos\.mat have no fields"),
        (miniatures.mat(annotations=miniatures.annotations([{"fname": "1.jpg"}])), r"contain no class_names"),
        (_annotations(relative_im_path="../1.jpg"), r"lists '\.\./1\.jpg'"),
        (_annotations(**{"class": np.uint8(5)}), r"class of an annotation is outside the 4 named classes"),
    ],
)
def test_refuses_annotations_that_are_not_the_published_ones(
    tmp_path: Path, content: bytes, message: str
) -> None:
    folder = first_layout(tmp_path / "raw")
    (folder / "cars_annos.mat").write_bytes(content)
    with pytest.raises(UserError, match=message):
        run(folder, tmp_path / "out")


def test_reads_two_archives_that_unpack_to_the_same_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for Paris: the content of one archive does not imply that the other is unpacked."""
    published = PUBLISHED["cars"]
    halves = tuple(replace(file, unpacked="jpg/") for file in published.layouts[1][:2])
    monkeypatch.setitem(PUBLISHED, "cars", replace(published, layouts=(halves,)))
    miniatures.tgz({"jpg/1.jpg": b"one"}, tmp_path / "cars_train.tgz")
    miniatures.tgz({"jpg/2.jpg": b"two"}, tmp_path / "cars_test.tgz")
    (tmp_path / "scratch").mkdir()
    tree = Tree(tmp_path, PUBLISHED["cars"], tmp_path / "scratch")
    assert [tree.read(f"jpg/{number}.jpg") for number in (1, 2)] == [b"one", b"two"]
