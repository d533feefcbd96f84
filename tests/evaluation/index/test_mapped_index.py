"""Indexes of galleries that are mapped from a file."""

from pathlib import Path

import numpy as np
import pytest

from tests.vectors import gaussian, unit
from unseen.evaluation.index import mapped as mapping
from unseen.evaluation.index.index import build, load, save, search
from unseen.evaluation.index.mapped import all_vectors, build_mapped, recall_mapped
from unseen.evaluation.index.recall import recall
from unseen.evaluation.settings import Flat, Hnsw, Ivf, IvfPq, Setting

GALLERY = unit(gaussian(1500, 16, seed=3)).astype(np.float32)
SETTINGS = [Flat(), Ivf(lists=12), IvfPq(lists=12, code_bytes=4), Hnsw()]


def mapped_gallery(path: Path) -> np.ndarray:
    GALLERY.tofile(path)
    return np.memmap(path, np.float32, "r", shape=GALLERY.shape)


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_index_of_a_mapped_gallery_is_that_of_build(setting: Setting, tmp_path: Path) -> None:
    save(tmp_path / "mapped", build_mapped(mapped_gallery(tmp_path / "vectors"), setting))
    save(tmp_path / "built", build(GALLERY, np.arange(len(GALLERY)), setting))
    assert (tmp_path / "mapped").read_bytes() == (tmp_path / "built").read_bytes()


@pytest.mark.parametrize("setting", [Flat(), IvfPq(lists=12, code_bytes=4)])
def test_full_vectors_are_those_of_the_gallery_and_no_copy(setting: Setting, tmp_path: Path) -> None:
    gallery = mapped_gallery(tmp_path / "vectors")
    index = build_mapped(gallery, setting)
    assert np.shares_memory(all_vectors(index), gallery)
    del gallery
    rows, _ = search(index, GALLERY[:50], None, 1)
    assert rows[:, 0].tolist() == list(range(50))


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("setting", SETTINGS)
def test_gives_the_vectors_and_the_rows_of_a_loaded_index(
    setting: Setting, mapped: bool, tmp_path: Path
) -> None:
    save(tmp_path / "index", build_mapped(GALLERY, setting))
    index = load(tmp_path / "index", setting, mapped)
    assert np.array_equal(all_vectors(index), GALLERY)
    ids = np.arange(len(GALLERY))
    for ours, expected in zip(
        search(index, GALLERY[:50], ids[:50], 5),
        search(build(GALLERY, ids, setting), GALLERY[:50], ids[:50], 5),
        strict=True,
    ):
        assert np.array_equal(ours, expected)


def test_learns_lists_from_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapping, "CENTRES", 0)
    monkeypatch.setattr(mapping, "PER_LIST", 50)
    setting = Ivf(lists=12, probes=12)
    index = build_mapped(GALLERY, setting)
    save(tmp_path / "sampled", index)
    save(tmp_path / "built", build(GALLERY, np.arange(len(GALLERY)), setting))
    assert (tmp_path / "sampled").read_bytes() != (tmp_path / "built").read_bytes()
    rows, _ = search(index, GALLERY[:50], None, 1)
    assert rows[:, 0].tolist() == list(range(50)), "with all lists probed the search is exact"


@pytest.mark.parametrize(
    "setting", [Ivf(lists=30, probes=2), IvfPq(lists=30, probes=2, code_bytes=4), Hnsw()]
)
def test_recall_in_parts_is_that_of_the_whole_gallery(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapping, "PART", 400)
    index, ids = build_mapped(GALLERY, setting), np.arange(len(GALLERY))
    measured = recall_mapped(index, 5, 100, 0)
    assert measured == recall(index, GALLERY, ids, GALLERY, ids, 5, 100, 0)
    assert isinstance(setting, Hnsw) or measured.at_k < 1


def test_refuses_an_index_of_codes_only() -> None:
    with pytest.raises(ValueError, match="needs the vectors in memory"):
        build_mapped(GALLERY, IvfPq(lists=12, code_bytes=4, refine=None))
