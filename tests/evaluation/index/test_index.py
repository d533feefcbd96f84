"""Indexes of every kind: equal to exact search if they search all lists, recall, equal bytes, files."""

import errno
import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import faiss
import numpy as np
import pytest
from pydantic import ValidationError

from unseen.evaluation.index import index as index_module
from unseen.evaluation.index.exact import exact_search
from unseen.evaluation.index.index import Index, build, load, save, search, search_blocks, vectors_at
from unseen.evaluation.index.kinds import (
    KINDS,
    LEAST_PER_LIST,
    from_plain,
    stores_vectors,
    to_plain,
)
from unseen.evaluation.index.recall import recall
from unseen.evaluation.metrics import Rows, averages, per_query
from unseen.evaluation.settings import ApproximateIndex, EvaluateSettings, Flat, Hnsw, Ivf, IvfPq, Setting
from unseen.runtime.errors import UserError


def clustered(rows: int, dim: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((rows // 10, dim))[
        generator.integers(rows // 10, size=rows)
    ] + 0.7 * generator.standard_normal((rows, dim))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


@functools.cache
def built(setting: Setting) -> Index:
    """The index of all rows, which no test changes."""
    return build(GALLERY, IDS, setting)


GALLERY = clustered(3000, 24)
IDS = np.random.default_rng(1).permutation(10_000)[:3000]
THOROUGH = [
    Flat(),
    Ivf(probes=10_000),
    IvfPq(probes=10_000, code_bytes=6, refine=3000),
    Hnsw(neighbours=32, build_width=200, search_width=3000),
]
SETTINGS = [
    Ivf(lists=30, probes=4),
    IvfPq(lists=30, probes=8, code_bytes=6, refine=40),
    IvfPq(lists=30, probes=8, code_bytes=12, refine=None),
    Hnsw(neighbours=16),
]


@pytest.mark.slow
@pytest.mark.parametrize("setting", THOROUGH, ids=repr)
def test_searching_all_lists_equals_exact_search(setting: Setting) -> None:
    index = built(setting)
    result, expected = (
        search(index, GALLERY[:200], IDS[:200], 15),
        exact_search(GALLERY[:200], IDS[:200], GALLERY, IDS, 15),
    )
    assert np.array_equal(result[0], expected[0])
    assert np.array_equal(result[1], expected[1])
    measured = recall(index, GALLERY, IDS, GALLERY, IDS, 15, 100, 0)
    assert measured == (1.0, 1.0, 15, 100)


@pytest.mark.slow
@pytest.mark.parametrize("setting", THOROUGH, ids=repr)
def test_an_index_that_searches_all_lists_gives_the_exact_metrics(setting: Setting) -> None:
    rows = Rows(IDS[:600], np.arange(600) % 80, GALLERY[:600])
    expected = per_query(rows, rows, (1, 4), keep=5)
    index = build(rows.embedding, rows.row_id, setting)
    results = per_query(rows, rows, (1, 4), keep=5, search=functools.partial(search_blocks, index))
    assert averages(results) == averages(expected)
    assert np.array_equal(results.neighbours, expected.neighbours)


def test_rows_missed_by_an_index_lower_the_metrics() -> None:
    # the class of a row is the nearest of 60 rows
    rows = Rows(IDS[:2000], (GALLERY[:2000] @ GALLERY[:60].T).argmax(1), GALLERY[:2000])
    incomplete = build(rows.embedding, rows.row_id, Ivf(lists=200, probes=1))
    approximate, exact = (
        averages(per_query(rows, rows, (1, 4), search=s))
        for s in (functools.partial(search_blocks, incomplete), None)
    )
    assert approximate["recall_at_4"] <= exact["recall_at_4"]
    assert approximate["map_at_r"] < exact["map_at_r"]


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS, ids=repr)
def test_recall_is_the_share_of_exact_neighbours(setting: Setting) -> None:
    index = built(setting)
    neighbours, _ = search(index, GALLERY, IDS, 10)
    exact, _ = exact_search(GALLERY, IDS, GALLERY, IDS, 10)
    shares = [len(set(a) & set(b)) / 10 for a, b in zip(neighbours.tolist(), exact.tolist(), strict=True)]
    measured = recall(index, GALLERY, IDS, GALLERY, IDS, 10, 3000, 0)
    assert measured.at_k == pytest.approx(np.mean(shares))
    assert measured.at_1 == pytest.approx((neighbours[:, 0] == exact[:, 0]).mean())
    assert 0.5 < measured.at_k < 1
    sampled = recall(index, GALLERY, IDS, GALLERY, IDS, 10, 400, 3)
    assert sampled.queries == 400
    assert sampled.at_k == pytest.approx(measured.at_k, abs=0.05)
    assert recall(index, GALLERY, IDS, GALLERY, IDS, 10, 400, 3) == sampled


@pytest.mark.slow
def test_recall_grows_with_the_searched_lists() -> None:
    for settings in (
        [Ivf(lists=60, probes=p) for p in (1, 4, 60)],
        [Hnsw(neighbours=4, build_width=20, search_width=w) for w in (16, 64, 2000)],
    ):
        recalls = [
            recall(build(GALLERY, IDS, setting), GALLERY, IDS, GALLERY, IDS, 10, 500, 0).at_k
            for setting in settings
        ]
        assert recalls == sorted(recalls)
        assert recalls[0] < recalls[-1] - 0.02


def test_recall_counts_equally_near_rows() -> None:
    """Every row occurs ten times; any of the copies is a correct result."""
    gallery, ids = np.repeat(clustered(100, 8), 10, axis=0), np.arange(1000)
    index = build(gallery, ids, Ivf(lists=1, probes=1))
    assert recall(index, gallery, ids, gallery, ids, 5, 1000, 0)[:2] == (1, 1)


@pytest.mark.parametrize("setting", SETTINGS, ids=repr)
def test_a_query_is_removed_by_id_and_a_ranking_is_in_order(setting: Setting) -> None:
    gallery = np.repeat(clustered(500, 12), 2, axis=0)
    ids = np.random.default_rng(0).permutation(1000)
    neighbours, similarities = search(build(gallery, ids, setting), gallery, ids, 7)
    assert not (neighbours == ids[:, None]).any()
    valid = neighbours >= 0
    assert np.isneginf(similarities[~valid]).all()
    assert (valid[:, 1:] <= valid[:, :-1]).all()
    tied = (similarities[:, 1:] == similarities[:, :-1]) & valid[:, 1:]
    assert tied.any()
    assert (neighbours[:, 1:] > neighbours[:, :-1])[tied].all()
    assert all(len(set(row[row >= 0])) == (row >= 0).sum() for row in neighbours)
    place = np.argsort(ids)[neighbours[valid]]
    wide = np.repeat(gallery.astype(np.float64), valid.sum(axis=1), axis=0)
    assert np.abs(np.einsum("nd,nd->n", wide, gallery[place]) - similarities[valid]).max() < 1e-6


@pytest.mark.parametrize(
    "setting",
    [Ivf(lists=20, probes=1), Flat(), THOROUGH[1], THOROUGH[3]],
    ids=["one cell", "flat", "ivf", "hnsw"],
)
def test_a_short_gallery_is_padded(setting: Setting) -> None:
    gallery, ids = GALLERY[:20], np.arange(20)
    neighbours, similarities = search(build(gallery, ids, setting), gallery, ids, 25)
    assert neighbours.shape == similarities.shape == (20, 25)
    assert (neighbours[:, 19:] == -1).all()
    assert np.isneginf(similarities[:, 19:]).all()


def test_blocks_equal_the_search_of_all_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    index = build(GALLERY, IDS, SETTINGS[0])
    expected = search(index, GALLERY[:100], IDS[:100], 5)
    monkeypatch.setattr(index_module, "CELLS", 100)
    blocks = list(search_blocks(index, GALLERY[:100], IDS[:100], 5))
    assert len(blocks) == 10
    assert np.array_equal(np.concatenate([block.queries for block in blocks]), np.arange(100))
    positions = np.concatenate([block.positions for block in blocks])
    assert np.array_equal(np.where(positions < 0, -1, IDS[positions]), expected[0])


@pytest.mark.slow
@pytest.mark.parametrize("setting", [Flat(), *SETTINGS], ids=repr)
def test_same_gallery_same_bytes(setting: Setting) -> None:
    """For any order of the gallery and any number of threads."""
    shuffled = np.random.default_rng(5).permutation(3000)
    threads = faiss.omp_get_max_threads()
    first = built(setting)
    try:
        faiss.omp_set_num_threads(2)
        second = build(GALLERY[shuffled], IDS[shuffled], setting)
        assert faiss.omp_get_max_threads() == 2
    finally:
        faiss.omp_set_num_threads(threads)
    assert np.array_equal(faiss.serialize_index(first.engine), faiss.serialize_index(second.engine))


STORED: list[Setting] = [setting for setting in (Flat(), *SETTINGS) if stores_vectors(setting)]


@pytest.mark.slow
@pytest.mark.parametrize("setting", STORED, ids=repr)
def test_a_loaded_index_retrieves_the_same_rows(setting: Setting, tmp_path: Path) -> None:
    """Its ids are the positions of the ids in ascending order."""
    whole = built(setting)
    save(tmp_path / "index", whole)
    loaded = load(tmp_path / "index", setting)
    ids, similarities = search(whole, GALLERY[:50], None, 9)
    rows, loaded_similarities = search(loaded, GALLERY[:50], None, 9)
    assert np.array_equal(np.sort(IDS)[rows], ids)
    assert np.array_equal(loaded_similarities, similarities)
    assert np.array_equal(ids[:, 0], IDS[:50]), "without query ids no row is removed"


@pytest.mark.slow
@pytest.mark.parametrize("setting", [Flat(), *SETTINGS], ids=repr)
def test_vectors_equal_the_gallery(setting: Setting, tmp_path: Path) -> None:
    index = built(setting)
    rows = np.array([2999, 0, 5, 5])
    expected = GALLERY[np.argsort(IDS)[rows]]
    assert np.array_equal(vectors_at(index, rows), expected)
    if stores_vectors(setting):
        save(tmp_path / "index", index)
        assert np.array_equal(vectors_at(load(tmp_path / "index", setting), rows), expected)


@pytest.mark.slow
def test_search_parameters_can_be_changed_after_loading(tmp_path: Path) -> None:
    def recall_of(path: Path, setting: Setting) -> float:
        ids = np.arange(3000)
        return recall(load(path, setting), GALLERY, ids, GALLERY, ids, 5, 300, 0).at_k

    save(tmp_path / "ivf", build(GALLERY, np.arange(3000), Ivf(lists=60, probes=1)))
    assert recall_of(tmp_path / "ivf", Ivf(probes=1)) < recall_of(tmp_path / "ivf", Ivf(probes=60)) == 1
    save(tmp_path / "pq", build(GALLERY, np.arange(3000), IvfPq(lists=30, code_bytes=3, refine=20)))
    few_refined, many_refined = (
        recall_of(tmp_path / "pq", IvfPq(code_bytes=3, refine=refine)) for refine in (20, 1000)
    )
    assert few_refined < many_refined


@pytest.mark.slow
def test_refuses_files_of_another_kind_and_damaged_files(tmp_path: Path) -> None:
    for setting in STORED:
        save(tmp_path / setting.kind, built(setting))
    for setting in STORED:
        for other_setting in STORED:
            if other_setting != setting:
                with pytest.raises(ValueError, match="expected a Index"):
                    load(tmp_path / setting.kind, other_setting)
        content = (tmp_path / setting.kind).read_bytes()
        (tmp_path / "cut").write_bytes(content[:1000])
        with pytest.raises(RuntimeError, match="cut"):
            load(tmp_path / "cut", setting)
    with pytest.raises(ValueError, match="stores only codes cannot be saved"):
        save(tmp_path / "codes", build(GALLERY, IDS, IvfPq(lists=30, code_bytes=6, refine=None)))
    assert not (tmp_path / "codes").exists()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("function", ["write_index", "read_index"])
def test_an_error_of_the_system_has_its_number_and_the_path(
    function: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The texts are those of FAISS 1.15."""

    def fail(*_: object) -> None:
        raise RuntimeError(
            f"Error in faiss::FileIOWriter: could not open a for writing: {os.strerror(number)}"
        )

    index = build(GALLERY, IDS, Flat())
    monkeypatch.setattr(faiss, function, fail)
    with pytest.raises(OSError, match=os.strerror(number)) as error:
        save(tmp_path / "a", index) if function == "write_index" else load(tmp_path / "a", Flat())
    assert (error.value.errno, error.value.filename) == (number, str(tmp_path / "a"))


def test_refuses_impossible_settings() -> None:
    with pytest.raises(UserError, match="500 lists, but the gallery has only 100 rows"):
        build(GALLERY[:100], IDS[:100], Ivf(lists=500))
    with pytest.raises(UserError, match="occurs twice in the gallery"):
        build(GALLERY[:100], IDS[:100] // 5000, Hnsw())


def test_refuses_impossible_codes() -> None:
    with pytest.raises(UserError, match=r"Codes of 7 bytes do not fit embeddings of 24 dimensions") as caught:
        build(GALLERY, IDS, IvfPq(code_bytes=7))
    assert "a divisor of 24: 1, 2, 3, 4, 6, 8, 12, 24." in caught.value.remedy
    with pytest.raises(UserError, match="256 rows or more to learn 256 centres, but the gallery has 255"):
        build(GALLERY[:255], IDS[:255], IvfPq(code_bytes=6))
    assert build(GALLERY[:256], IDS[:256], IvfPq(code_bytes=6)).engine.ntotal == 256
    with pytest.raises(UserError, match="4,000 lists, but the gallery has only 3,000 rows"):
        build(GALLERY, IDS, IvfPq(lists=4000, code_bytes=6))


@pytest.mark.slow
def test_codes_rank_by_their_definition() -> None:
    """All lists are searched without refinement. The similarity is that to centre + code, decoded by FAISS
    and summed in float64."""
    index = build(GALLERY, IDS, IvfPq(lists=10, probes=10, code_bytes=6, refine=None))
    decoded = np.empty((3000, 24))
    index.engine.make_direct_map()
    for row in range(3000):
        decoded[row] = index.engine.reconstruct(row)
    for query, ranked in zip(GALLERY[:20], search(index, GALLERY[:20], np.full(20, -5), 10)[0], strict=True):
        first = np.argsort(-(decoded @ query.astype(np.float64)))[: 10 + 1 + index_module.SPARE]
        exact = vectors_at(index, first).astype(np.float64) @ query.astype(np.float64)
        assert ranked.tolist() == index.ids[first[np.argsort(-exact)]][:10].tolist()


@pytest.mark.slow
def test_recall_grows_with_refinement_and_code_length() -> None:
    def found(index: Index) -> float:
        return recall(index, GALLERY, IDS, GALLERY, IDS, 10, 200, 0).at_k

    full = build(GALLERY, IDS, IvfPq(lists=10, probes=10, code_bytes=3))
    assert isinstance(full.setting, IvfPq)
    unrefined = [
        found(build(GALLERY, IDS, IvfPq(lists=10, probes=10, code_bytes=size, refine=None)))
        for size in (3, 12)
    ]
    anew = [
        found(full._replace(setting=full.setting.model_copy(update={"refine": refine})))
        for refine in (1, 60, 3000)
    ]
    assert anew[0] == unrefined[0], "as many as are searched for are ranked anew, codes alone or not"
    assert anew[0] < anew[1] - 0.05 < anew[2] - 0.1
    assert anew[2] == 1
    assert unrefined[0] < unrefined[1] - 0.05


_BESIDE_OTHERS = """
import sys
import faiss.contrib.torch_utils  # as other libraries do: it replaces methods of every index
sys.path.insert(0, {root!r})
from pathlib import Path
from tempfile import TemporaryDirectory
from tests.evaluation.index import test_index as here, test_mapped_index as mapped
with TemporaryDirectory() as directory:
    for setting in mapped.SETTINGS:
        mapped.test_the_index_of_a_mapped_gallery_is_that_of_build(setting, Path(directory))
for setting in here.SETTINGS:
    here.test_a_query_is_removed_by_id_and_a_ranking_is_in_order(setting)
for setting in here.THOROUGH:
    here.test_searching_all_lists_equals_exact_search(setting)
print("same")
"""


@pytest.mark.slow
def test_libraries_that_replace_methods_of_faiss_have_no_effect() -> None:
    code = _BESIDE_OTHERS.format(root=str(Path(__file__).resolve().parents[3]))
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.stdout == "same\n", process.stderr


@pytest.mark.slow
def test_another_seed_gives_other_codes() -> None:
    index, other_index = (
        faiss.serialize_index(build(GALLERY, IDS, IvfPq(lists=1, code_bytes=6, seed=seed)).engine)
        for seed in (1, 2)
    )
    assert not np.array_equal(index, other_index)


@pytest.mark.slow
def test_codes_are_small() -> None:
    settings = (IvfPq(lists=30, code_bytes=3, refine=refine) for refine in (20, None))
    size, code_size = (
        len(faiss.serialize_index(build(GALLERY, IDS, setting).engine)) for setting in settings
    )
    assert size - code_size == pytest.approx(3000 * 24 * 4, abs=200)
    assert code_size < 3000 * (3 + 8) + 4 * 24 * (256 + 30) + 2000  # codes and ids, centres, headers


def test_settings_of_params_equal_those_of_the_index() -> None:
    assert [kind().kind for kind in KINDS.values()] == list(KINDS)
    for member in get_args(get_args(ApproximateIndex)[0]):
        chosen = member()
        assert from_plain(to_plain(chosen)) == chosen
        assert EvaluateSettings.model_validate({"approximate": {"kind": chosen.kind}}).approximate == chosen
    for invalid in ({"code_bytes": 0}, {"refine": 0}, {"probes": 0}, {"lists": 0}, {"neighbours": 16}):
        with pytest.raises(ValidationError):
            EvaluateSettings.model_validate({"approximate": {"kind": "ivf_pq", **invalid}})


def test_few_rows_have_few_lists() -> None:
    assert to_plain(Ivf()) == {"kind": "ivf", "lists": None, "probes": 64, "seed": 1234, "build_threads": 1}
    assert build(GALLERY, IDS, Ivf()).engine.nlist == 3000 // LEAST_PER_LIST
