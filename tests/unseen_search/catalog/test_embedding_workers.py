"""Several processes embed to the same bytes as one. The precision belongs to the catalog."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.photos import COUNT, age, save_products
from unseen.frozen import workers
from unseen.frozen.workers import devices_of, embedding, processes_of
from unseen.runtime.errors import UserError
from unseen_search.catalog import Embedder, build

making = sys.modules["unseen_search.catalog.building"]


def contents(catalog: Path) -> dict[str, bytes]:
    return {
        path.relative_to(catalog).as_posix(): path.read_bytes()
        for path in sorted(catalog.rglob("*"))
        if path.is_file()
    }


@pytest.mark.slow
def test_two_processes_write_the_bytes_of_one(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three batches, the last of them smaller; runs of one batch."""
    photos = save_products(tmp_path / "photos", products=28)
    age(photos, 3600)
    before = torch.get_num_threads()
    for count in (1, 2):
        build(photos, tmp_path / str(count), model, labels="folders", processes=1, workers=count)
    first, second = (contents(tmp_path / str(count)) for count in (1, 2))
    assert {"catalog.json", "index.faiss", "pictures.parquet", "rivals.parquet"} < first.keys()
    assert first == second
    assert torch.get_num_threads() == before
    assert capsys.readouterr().err.count("140/140 images") == 2, "of one process and of two"


def test_one_process_computes_with_the_threads_of_each_of_several(
    model: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    call = Embedder.__call__

    def counted(self: Embedder, pictures: list[Path], label: str | None = None) -> np.ndarray:
        threads.append((label is not None, torch.get_num_threads()))
        return call(self, pictures, label)

    monkeypatch.setattr(Embedder, "__call__", counted)
    monkeypatch.setattr(workers, "THREADS", 3)
    build(photos, tmp_path / "catalog", model, processes=1)
    assert (True, 3) in threads


@pytest.mark.parametrize(
    ("gpus", "cores", "pictures", "asked", "expected"),
    [
        (0, 2, 100_000, None, 2),
        (0, 64, 100_000, None, 8),
        (0, 64, 300, None, 2),
        (0, 64, 0, None, 1),
        (4, 64, 100_000, None, 4),
        (4, 64, 100, None, 1),
        (0, 2, 100_000, 5, 5),
        (0, 2, 65, 5, 2),  # batches
        (0, 2, 0, 5, 1),
    ],
)
def test_the_number_of_processes_follows_devices_and_pictures(
    gpus: int, cores: int, pictures: int, asked: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(workers, "usable_cores", lambda: cores)
    assert processes_of(pictures, asked) == expected


def test_processes_use_the_gpus_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    assert devices_of(2) == ["cpu", "cpu"]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert devices_of(3) == ["cuda:0", "cuda:1", "cuda:0"]


def test_a_killed_process_is_an_error_with_a_remedy(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed:
        def __init__(self, *_: object, **__: object) -> None: ...

        def map(self, function: Callable[..., object], runs: list[list[Path]]) -> Iterator[object]:
            raise BrokenProcessPool

        def shutdown(self, cancel_futures: bool) -> None:
            assert cancel_futures

    monkeypatch.setattr(workers, "ProcessPoolExecutor", Killed)
    with (
        pytest.raises(UserError, match=r"was killed[\s\S]*--workers to a smaller number"),
        embedding(Embedder(model), 2) as embed,
    ):
        embed([Path("a.jpg")], "embed")


def test_searches_and_updates_use_the_precision_of_the_catalog(
    model: Path, photos: Path, tmp_path: Path, embedded: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    exact = build(photos, tmp_path / "exact", model, processes=1)
    assert (exact.precision, exact.about["precision"]) == ("float32", "float32")
    short = build(photos, tmp_path / "short", model, processes=1, precision="bfloat16")
    assert short.about["precision"] == short.embedder.precision == "bfloat16"
    difference = np.abs(short.vectors() - exact.vectors()).max()
    assert 1e-4 < difference < 0.1
    np.testing.assert_allclose(np.linalg.norm(short.vectors(), axis=1), 1, atol=1e-6)
    query = photos / short.paths[3]
    assert short.find([query], 1)[0][0].similarity > 1 - 1e-6, "the query is embedded as the picture was"

    assert embedded == [COUNT, COUNT]
    assert build(photos, tmp_path / "short", processes=1).precision == "bfloat16"
    assert embedded == [COUNT, COUNT], "an update embeds nothing"
    again = build(photos, tmp_path / "short", processes=1, precision="float32")
    assert embedded == [COUNT, COUNT, COUNT]
    assert "short was embedded in bfloat16: every picture is embedded again" in capsys.readouterr().err
    np.testing.assert_array_equal(again.vectors(), exact.vectors())


def test_a_killed_build_of_another_precision_is_not_continued(
    model: Path, photos: Path, tmp_path: Path, embedded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(making, "write_catalog", killed)
        build(photos, tmp_path / "catalog", model, processes=1)
    build(photos, tmp_path / "catalog", model, processes=1, precision="bfloat16")
    assert embedded == [COUNT, COUNT]


@pytest.mark.parametrize(("supported", "precision"), [(True, "bfloat16"), (False, "float32")])
def test_auto_is_bfloat16_where_the_processor_computes_with_it(
    supported: bool,
    precision: str,
    model: Path,
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(making, "computes_with_bfloat16", lambda device: supported)
    assert build(photos, tmp_path / "catalog", model, processes=1, precision="auto").precision == precision
