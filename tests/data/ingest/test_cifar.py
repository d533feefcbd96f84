"""CIFAR-10 and CIFAR-100 in the layout of their binary archives, and refusal of damaged archives."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.ingest import cifars
from unseen.data.class_split import without_validation
from unseen.data.decode import decode
from unseen.data.ingest.ingest import ingest
from unseen.data.ingest.settings import Cifar10Source, Cifar100Source, IngestSettings
from unseen.data.ingest.sources import cifar
from unseen.data.shards import Shards
from unseen.runtime.errors import UserError

LAYOUTS = dict(cifar.LAYOUTS)
SOURCES: dict[str, Any] = {"cifar10": Cifar10Source, "cifar100": Cifar100Source}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar, "LAYOUTS", cifars.SMALL)


def run(root: Path, output: Path, kind: str, processes: int = 1, **source: Any) -> dict[str, Any]:
    return ingest(SOURCES[kind](path=str(root), **source), IngestSettings(), output, kind, processes)


def collection(root: Path, kind: str, tmp_path: Path) -> Any:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return cifar.collection(SOURCES[kind](path=str(root)), scratch)


def test_layouts_have_the_published_file_sizes() -> None:
    ten, hundred = LAYOUTS["cifar10"], LAYOUTS["cifar100"]
    assert ten.files == (*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin")
    assert [images * (1 + 3072) for images in ten.per_file] == [30_730_000] * 6  # from the page of the set
    assert hundred.files == ("train.bin", "test.bin")
    assert [images * (2 + 3072) for images in hundred.per_file] == [153_700_000, 30_740_000]


@pytest.mark.parametrize("pack", [cifars.packed, cifars.unpacked], ids=["packed", "unpacked"])
def test_splits_cifar_10_by_class(tmp_path: Path, pack: Any) -> None:
    manifest = run(pack(tmp_path / "raw", "cifar10"), tmp_path / "out", "cifar10")
    shards = Shards(tmp_path / "out", verify=True)
    assert shards.class_names == cifars.NAMES["cifar10"]["batches.meta.txt"].split()
    assert manifest["counts"] == {"train": {"images": 60, "classes": 5}, "test": {"images": 60, "classes": 5}}
    assert manifest["unseen_classes"] is True
    assert manifest["published"] == "CIFAR-10"
    assert manifest["ingest"]["formats"] == {"pixels RGB": 120}
    assert shards.groups == [None] * 120
    row = shards.sources.index("data_batch_3.bin/00017")
    assert shards.class_names[shards.labels[row]] == "horse"
    assert np.array_equal(decode(shards.image(row)), cifars.planes("data_batch_3.bin", 17).transpose(1, 2, 0))


@pytest.mark.slow
def test_groups_of_cifar_100_are_super_classes(tmp_path: Path) -> None:
    manifest = run(cifars.packed(tmp_path / "raw", "cifar100"), tmp_path / "out", "cifar100")
    shards = Shards(tmp_path / "out", verify=True)
    assert manifest["counts"] == {
        "train": {"images": 200, "classes": 50},
        "test": {"images": 200, "classes": 50},
    }
    row = shards.sources.index("test.bin/00067")
    assert shards.class_names[shards.labels[row]] == "thing_067"
    assert (shards.groups[row], shards.splits[row]) == ("insects", "test")
    assert np.array_equal(decode(shards.image(row)), cifars.planes("test.bin", 67).transpose(1, 2, 0))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cifar10", "cifar100"])
def test_official_parts_have_the_same_classes(tmp_path: Path, kind: str) -> None:
    manifest = run(cifars.unpacked(tmp_path / "raw", kind), tmp_path / "out", kind, split="images")
    shards = Shards(tmp_path / "out")
    classes, test_file = {"cifar10": (10, "test_batch.bin"), "cifar100": (100, "test.bin")}[kind]
    assert [manifest["counts"][split]["classes"] for split in ("train", "test")] == [classes, classes]
    assert manifest["unseen_classes"] is False
    names = [name.partition("/") for name in shards.class_names]
    assert [split for split, _, _ in names] == ["train"] * classes + ["test"] * classes
    assert {name for _, _, name in names[:classes]} == {name for _, _, name in names[classes:]}
    test_sources = [shards.sources[row] for row in shards.rows("test")]
    assert {source.partition("/")[0] for source in test_sources} == {test_file}
    trained = without_validation(shards)
    assert (trained.classes, len(trained.validation_rows)) == (classes, 0)
    assert set(trained.rows) == set(shards.rows("train"))


@pytest.mark.slow
def test_archive_and_folder_give_equal_bytes_for_any_number_of_processes(tmp_path: Path) -> None:
    run(cifars.packed(tmp_path / "packed", "cifar10"), tmp_path / "first", "cifar10")
    run(cifars.unpacked(tmp_path / "unpacked", "cifar10"), tmp_path / "second", "cifar10", processes=2)
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("first", "second")
    )
    assert first == second


def test_removes_the_scratch_directory(tmp_path: Path) -> None:
    run(cifars.packed(tmp_path / "raw", "cifar10"), tmp_path / "out" / "cifar10", "cifar10")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["cifar10"]


@pytest.mark.parametrize(
    "missing", ["data_batch_1.bin", "data_batch_5.bin", "test_batch.bin", "batches.meta.txt"]
)
def test_refuses_a_missing_file(tmp_path: Path, missing: str) -> None:
    root = cifars.unpacked(tmp_path / "raw", "cifar10", **{missing.replace(".", "_"): None})
    expected = (
        rf"(?s)raw contains no {missing}\..*cifar-10-binary\.tar\.gz \(170,052,171 bytes, md5 c32a.*"
        rf"cifar\.html"
    )
    with pytest.raises(UserError, match=expected):
        collection(root, "cifar10", tmp_path)


def test_refuses_the_python_version(tmp_path: Path) -> None:
    folder = tmp_path / "raw" / "cifar-100-python"
    folder.mkdir(parents=True)
    (folder / "train").write_bytes(pickle.dumps({b"data": []}))
    expected = r"contains no train\.bin \(its files are pickles, the python version"
    with pytest.raises(UserError, match=expected):
        collection(tmp_path / "raw", "cifar100", tmp_path)


@pytest.mark.parametrize(
    ("end", "records"),
    [(-1, "19 records of 3,073 bytes and 3,072 bytes more"), (-3073, "19 records of 3,073 bytes and 0")],
)
def test_refuses_a_truncated_file(tmp_path: Path, end: int, records: str) -> None:
    content = cifars.records("cifar10", "data_batch_2.bin", 20)[:end]
    root = cifars.unpacked(tmp_path / "raw", "cifar10", data_batch_2_bin=content)
    expected = rf"data_batch_2\.bin has [\d,]+ bytes, {records}.*expected 20 records, 61,460 bytes"
    with pytest.raises(UserError, match=expected):
        collection(root, "cifar10", tmp_path)


def test_refuses_records_of_another_set(tmp_path: Path) -> None:
    root = cifars.unpacked(
        tmp_path / "raw", "cifar100", train_bin=cifars.records("cifar10", "train.bin", 200)
    )
    expected = r"train\.bin has 614,600 bytes, 199 records of 3,074 bytes and 2,874 bytes more; expected 200"
    with pytest.raises(UserError, match=expected):
        collection(root, "cifar100", tmp_path)


def test_refuses_a_label_without_a_name(tmp_path: Path) -> None:
    content = bytearray(cifars.records("cifar100", "test.bin", 200))
    content[7 * 3074 + 1] = 100
    root = cifars.unpacked(tmp_path / "raw", "cifar100", test_bin=bytes(content))
    with pytest.raises(UserError, match=r"test\.bin: image 7 has label 100; fine_label_names\.txt names 100"):
        collection(root, "cifar100", tmp_path)


def test_refuses_classes_of_unequal_size(tmp_path: Path) -> None:
    content = bytearray(cifars.records("cifar10", "data_batch_1.bin", 20))
    content[3 * 3073] = 4
    root = cifars.unpacked(tmp_path / "raw", "cifar10", data_batch_1_bin=bytes(content))
    with pytest.raises(UserError, match=r"cat has 9 of 100 images, expected 10"):
        collection(root, "cifar10", tmp_path)


def test_refuses_a_class_in_two_super_classes(tmp_path: Path) -> None:
    content = bytearray(cifars.records("cifar100", "test.bin", 200))
    # swaps images 0 and 1, so that no super-class changes its number of images
    content[0], content[3074] = 1, 0
    root = cifars.unpacked(tmp_path / "raw", "cifar100", test_bin=bytes(content))
    with pytest.raises(UserError, match=r"thing_000 is in more than one super-class: aquatic_mammals, fish"):
        collection(root, "cifar100", tmp_path)


@pytest.mark.parametrize("text", ["airplane\ncat\n", "cat\n" * 10, "a b c d e f g h i j k"])
def test_refuses_another_number_of_names(tmp_path: Path, text: str) -> None:
    root = cifars.unpacked(tmp_path / "raw", "cifar10", batches_meta_txt=text.encode())
    with pytest.raises(UserError, match=r"batches\.meta\.txt names \d+ different labels, expected 10"):
        collection(root, "cifar10", tmp_path)


def test_requires_the_published_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar, "LAYOUTS", LAYOUTS)
    expected = r"data_batch_1\.bin has 61,460 bytes, 20 records .* expected 10,000 records, 30,730,000 bytes"
    with pytest.raises(UserError, match=expected):
        collection(cifars.unpacked(tmp_path / "raw", "cifar10"), "cifar10", tmp_path)
