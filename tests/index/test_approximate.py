"""IVF, IVF-PQ and HNSW: drop-in for exact search, recall, same bytes, files."""

import dataclasses
import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import faiss
import numpy as np
import pytest
from pydantic import ValidationError

from pipeline.config.stages import ApproximateIndex, EvaluateSettings
from pipeline.evaluation.metrics import Rows, averages, per_query
from pipeline.evaluation.protocol import Protocol
from pipeline.index import approximate
from pipeline.index.approximate import Hnsw, Index, Ivf, IvfPq, approximate_blocks, approximate_search, build, declared, load, recall, save
from pipeline.index.exact import exact_search
from pipeline.index.kinds import KINDS, LEAST_PER_LIST, Setting, kind_of
from pipeline.runtime.errors import UserError


def clustered(rows: int, dim: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((rows // 10, dim))[generator.integers(rows // 10, size=rows)] + 0.7 * generator.standard_normal((rows, dim))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


GALLERY = clustered(3000, 24)
IDS = np.random.default_rng(1).permutation(10_000)[:3000]
THOROUGH = [Ivf(probes=10_000), IvfPq(probes=10_000, code_bytes=6, refine=3000), Hnsw(neighbours=32, build_width=200, search_width=3000)]
SETTINGS = [
    Ivf(lists=30, probes=4),
    IvfPq(lists=30, probes=8, code_bytes=6, refine=40),
    IvfPq(lists=30, probes=8, code_bytes=12, refine=None),
    Hnsw(neighbours=16),
]


@pytest.mark.parametrize("setting", THOROUGH, ids=kind_of)
def test_looking_everywhere_is_exact_search(setting: Setting) -> None:
    index = build(GALLERY, IDS, setting)
    ours, theirs = approximate_search(index, GALLERY[:200], IDS[:200], 15), exact_search(GALLERY[:200], IDS[:200], GALLERY, IDS, 15)
    assert np.array_equal(ours[0], theirs[0])
    assert np.array_equal(ours[1], theirs[1])
    measured = recall(index, GALLERY, IDS, 15, 100, 0)
    assert measured == (1.0, 1.0, 15, 100)


@pytest.mark.parametrize("setting", THOROUGH, ids=kind_of)
def test_an_index_that_looks_everywhere_gives_the_exact_metrics(setting: Setting) -> None:
    rows = Rows(IDS[:600], np.arange(600) % 80, GALLERY[:600])
    expected = per_query(rows, rows, (1, 4), keep=5, engine="search")
    index = build(rows.embedding, rows.row_id, setting)
    found = per_query(rows, rows, (1, 4), keep=5, search=functools.partial(approximate_blocks, index))
    assert averages(found) == averages(expected)
    assert np.array_equal(found.neighbours, expected.neighbours)


def test_what_an_index_does_not_find_counts_as_ranked_behind_all_others() -> None:
    rows = Rows(IDS[:2000], (GALLERY[:2000] @ GALLERY[:60].T).argmax(1), GALLERY[:2000])  # a class is what is nearest to one of 60 rows
    poor = build(rows.embedding, rows.row_id, Ivf(lists=200, probes=1))
    found, exact = (averages(per_query(rows, rows, (1, 4), search=s)) for s in (functools.partial(approximate_blocks, poor), None))
    assert found["recall_at_4"] <= exact["recall_at_4"]
    assert found["map_at_r"] < exact["map_at_r"]


@pytest.mark.parametrize("setting", SETTINGS, ids=kind_of)
def test_recall_is_the_share_of_exact_neighbours(setting: Setting) -> None:
    index = build(GALLERY, IDS, setting)
    found, _ = approximate_search(index, GALLERY, IDS, 10)
    exact, _ = exact_search(GALLERY, IDS, GALLERY, IDS, 10)
    shares = [len(set(a) & set(b)) / 10 for a, b in zip(found.tolist(), exact.tolist(), strict=True)]
    measured = recall(index, GALLERY, IDS, 10, 3000, 0)
    assert measured.at_k == pytest.approx(np.mean(shares))
    assert measured.at_1 == pytest.approx((found[:, 0] == exact[:, 0]).mean())
    assert 0.5 < measured.at_k < 1
    sampled = recall(index, GALLERY, IDS, 10, 400, 3)
    assert sampled.queries == 400
    assert sampled.at_k == pytest.approx(measured.at_k, abs=0.05)
    assert recall(index, GALLERY, IDS, 10, 400, 3) == sampled


def test_looking_further_finds_more() -> None:
    for settings in ([Ivf(lists=60, probes=p) for p in (1, 4, 60)], [Hnsw(neighbours=4, build_width=20, search_width=w) for w in (16, 64, 2000)]):
        found = [recall(build(GALLERY, IDS, setting), GALLERY, IDS, 10, 500, 0).at_k for setting in settings]
        assert found == sorted(found)
        assert found[0] < found[-1] - 0.02


def test_equally_near_rows_count_as_found() -> None:
    """Every row ten times: which of the copies is returned says nothing about an index."""
    gallery, ids = np.repeat(clustered(100, 8), 10, axis=0), np.arange(1000)
    index = build(gallery, ids, Ivf(lists=1, probes=1))
    assert recall(index, gallery, ids, 5, 1000, 0)[:2] == (1, 1)


@pytest.mark.parametrize("setting", SETTINGS, ids=kind_of)
def test_a_query_is_removed_by_id_and_a_ranking_is_in_order(setting: Setting) -> None:
    gallery = np.repeat(clustered(500, 12), 2, axis=0)
    ids = np.random.default_rng(0).permutation(1000)
    found, similarities = approximate_search(build(gallery, ids, setting), gallery, ids, 7)
    assert not (found == ids[:, None]).any()
    held = found >= 0
    assert np.isneginf(similarities[~held]).all()
    assert (held[:, 1:] <= held[:, :-1]).all()
    tied = (similarities[:, 1:] == similarities[:, :-1]) & held[:, 1:]
    assert tied.any()
    assert (found[:, 1:] > found[:, :-1])[tied].all()
    assert all(len(set(row[row >= 0])) == (row >= 0).sum() for row in found)
    place = np.argsort(ids)[found[held]]
    wide = np.repeat(gallery.astype(np.float64), held.sum(axis=1), axis=0)
    assert np.abs(np.einsum("nd,nd->n", wide, gallery[place]) - similarities[held]).max() < 1e-6


@pytest.mark.parametrize("setting", [Ivf(lists=20, probes=1), THOROUGH[0], THOROUGH[2]], ids=["one cell", "ivf", "hnsw"])
def test_a_short_gallery_is_padded(setting: Setting) -> None:
    gallery, ids = GALLERY[:20], np.arange(20)
    found, similarities = approximate_search(build(gallery, ids, setting), gallery, ids, 25)
    assert found.shape == similarities.shape == (20, 25)
    assert (found[:, 19:] == -1).all()
    assert np.isneginf(similarities[:, 19:]).all()


def test_blocks_are_those_of_search(monkeypatch: pytest.MonkeyPatch) -> None:
    index = build(GALLERY, IDS, SETTINGS[0])
    whole = approximate_search(index, GALLERY[:100], IDS[:100], 5)
    monkeypatch.setattr(approximate, "CELLS", 100)
    blocks = list(approximate_blocks(index, GALLERY[:100], IDS[:100], 5))
    assert len(blocks) == 10
    assert np.array_equal(np.concatenate([block.queries for block in blocks]), np.arange(100))
    positions = np.concatenate([block.positions for block in blocks])
    assert np.array_equal(np.where(positions < 0, -1, IDS[positions]), whole[0])


@pytest.mark.parametrize("setting", SETTINGS, ids=kind_of)
def test_same_gallery_same_bytes(setting: Setting, tmp_path: Path) -> None:
    """Whatever order the gallery comes in and whatever number of threads is set outside."""
    shuffled = np.random.default_rng(5).permutation(3000)
    threads = faiss.omp_get_max_threads()
    save(tmp_path / "one", build(GALLERY, IDS, setting))
    try:
        faiss.omp_set_num_threads(2)
        save(tmp_path / "two", build(GALLERY[shuffled], IDS[shuffled], setting))
        assert faiss.omp_get_max_threads() == 2
    finally:
        faiss.omp_set_num_threads(threads)
    for name in ("index.faiss", "index.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.parametrize("setting", SETTINGS, ids=kind_of)
def test_a_saved_index_finds_the_same(setting: Setting, tmp_path: Path) -> None:
    built = build(GALLERY, IDS, setting)
    save(tmp_path / "index", built)
    for index in (load(tmp_path / "index", GALLERY, IDS, setting), load(tmp_path / "index", GALLERY[::-1], IDS[::-1], setting)):
        one, other = (approximate_search(each, GALLERY[:50], IDS[:50], 9) for each in (built, index))
        assert np.array_equal(one[0], other[0])
        assert np.array_equal(one[1], other[1])


def test_what_acts_at_search_time_may_change(tmp_path: Path) -> None:
    save(tmp_path / "index", build(GALLERY, IDS, Ivf(lists=60, probes=1)))
    few, all_of_them = (load(tmp_path / "index", GALLERY, IDS, Ivf(lists=60, probes=probes)) for probes in (1, 60))
    assert recall(few, GALLERY, IDS, 5, 300, 0).at_k < recall(all_of_them, GALLERY, IDS, 5, 300, 0).at_k == 1


def test_an_index_of_something_else_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "index"
    save(directory, build(GALLERY, IDS, Ivf(lists=30)))
    for gallery, ids, setting, message in (
        (GALLERY, IDS, Ivf(lists=31), "setting differ"),
        (GALLERY, IDS, Hnsw(), "kind, setting differ"),
        (GALLERY, IDS, IvfPq(lists=30, code_bytes=6), "kind, setting differ"),
        (-GALLERY, IDS, Ivf(lists=30), "gallery differ"),
        (GALLERY, IDS + 1, Ivf(lists=30), "gallery differ"),
        (GALLERY[1:], IDS[1:], Ivf(lists=30), "rows, gallery differ"),
    ):
        with pytest.raises(UserError, match=message):
            load(directory, gallery, ids, setting)
    whole = (directory / "index.faiss").read_bytes()
    (directory / "index.faiss").write_bytes(whole[:1000])
    with pytest.raises(UserError, match=r"index\.faiss cannot be read"):
        load(directory, GALLERY, IDS, Ivf(lists=30))
    faiss.write_index(faiss.IndexFlatIP(24), str(directory / "index.faiss"))
    with pytest.raises(UserError, match="holds 0 rows of 24 dimensions"):
        load(directory, GALLERY, IDS, Ivf(lists=30))
    for text in ("{", json.dumps(["ivf"])):
        (directory / "index.json").write_text(text)
        with pytest.raises(UserError, match=r"cannot be read|built from something else"):
            load(directory, GALLERY, IDS, Ivf(lists=30))
    with pytest.raises(UserError, match="cannot be read"):
        load(tmp_path / "none", GALLERY, IDS, Ivf(lists=30))


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(UserError, match="500 lists was asked for, the gallery has 100 rows"):
        build(GALLERY[:100], IDS[:100], Ivf(lists=500))
    with pytest.raises(UserError, match="occurs twice in the gallery"):
        build(GALLERY[:100], IDS[:100] // 5000, Hnsw())


def test_codes_that_cannot_be_are_refused() -> None:
    with pytest.raises(UserError, match=r"Codes of 7 bytes .* embeddings of 24 dimensions cannot be cut into") as caught:
        build(GALLERY, IDS, IvfPq(code_bytes=7))
    assert "a divisor of 24: 1, 2, 3, 4, 6, 8, 12, 24." in caught.value.remedy
    with pytest.raises(UserError, match="256 rows or more to learn their 256 centres from, the gallery has 255"):
        build(GALLERY[:255], IDS[:255], IvfPq(code_bytes=6))
    assert build(GALLERY[:256], IDS[:256], IvfPq(code_bytes=6)).engine.ntotal == 256
    with pytest.raises(UserError, match="4,000 lists was asked for, the gallery has 3,000 rows"):
        build(GALLERY, IDS, IvfPq(lists=4000, code_bytes=6))


def test_codes_propose_what_their_definition_puts_first() -> None:
    """Every cell looked into, nothing ranked anew: similarity to centre + code, decoded by FAISS, summed in float64."""
    index = build(GALLERY, IDS, IvfPq(lists=10, probes=10, code_bytes=6, refine=None))
    decoded = np.empty((3000, 24))
    index.engine.make_direct_map()
    for row in range(3000):
        decoded[row] = index.engine.reconstruct(row)
    for query, ranked in zip(GALLERY[:20], approximate_search(index, GALLERY[:20], np.full(20, -5), 10)[0], strict=True):
        first = np.argsort(-(decoded @ query.astype(np.float64)))[: 10 + 1 + approximate.SPARE]
        exact = index.gallery[first].astype(np.float64) @ query.astype(np.float64)
        assert ranked.tolist() == index.ids[first[np.argsort(-exact)]][:10].tolist()


def test_more_ranked_anew_and_longer_codes_find_more() -> None:
    def found(index: Index) -> float:
        return recall(index, GALLERY, IDS, 10, 200, 0).at_k

    full = build(GALLERY, IDS, IvfPq(lists=10, probes=10, code_bytes=3))
    bare = [found(build(GALLERY, IDS, IvfPq(lists=10, probes=10, code_bytes=size, refine=None))) for size in (3, 12)]
    anew = [found(full._replace(setting=dataclasses.replace(full.setting, refine=refine))) for refine in (1, 60, 3000)]
    assert anew[0] == bare[0], "as many as are searched for are ranked anew, codes alone or not"
    assert anew[0] < anew[1] - 0.05 < anew[2] - 0.1
    assert anew[2] == 1
    assert bare[0] < bare[1] - 0.05


_BESIDE_OTHERS = """
import sys
import faiss.contrib.torch_utils  # as other libraries do: it replaces methods of every index
sys.path.insert(0, {root!r})
from tests.index import test_approximate as here
for setting in here.SETTINGS:
    here.test_recall_is_the_share_of_exact_neighbours(setting)
for setting in here.THOROUGH:
    here.test_looking_everywhere_is_exact_search(setting)
print("same")
"""


@pytest.mark.slow
def test_libraries_that_replace_methods_of_faiss_change_nothing() -> None:
    code = _BESIDE_OTHERS.format(root=str(Path(__file__).resolve().parents[2]))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "same\n", done.stderr


def test_another_seed_is_another_code() -> None:
    one, other = (faiss.serialize_index(build(GALLERY, IDS, IvfPq(lists=1, code_bytes=6, seed=seed)).engine) for seed in (1, 2))
    assert not np.array_equal(one, other)


def test_the_number_ranked_anew_may_change_but_not_whether_vectors_are_there(tmp_path: Path) -> None:
    save(tmp_path / "index", build(GALLERY, IDS, IvfPq(lists=30, code_bytes=3, refine=20)))
    few, many = (load(tmp_path / "index", GALLERY, IDS, IvfPq(lists=30, code_bytes=3, refine=refine)) for refine in (20, 1000))
    assert recall(few, GALLERY, IDS, 5, 300, 0).at_k < recall(many, GALLERY, IDS, 5, 300, 0).at_k
    with pytest.raises(UserError, match="setting differ"):
        load(tmp_path / "index", GALLERY, IDS, IvfPq(lists=30, code_bytes=3, refine=None))
    save(tmp_path / "codes", build(GALLERY, IDS, IvfPq(lists=30, code_bytes=3, refine=None)))
    size, bare = ((tmp_path / name / "index.faiss").stat().st_size for name in ("index", "codes"))
    assert size - bare == pytest.approx(3000 * 24 * 4, abs=200)
    assert bare < 3000 * (3 + 8) + 4 * 24 * (256 + 30) + 2000  # codes and ids, centres, a little around them


def test_settings_of_params_are_those_of_the_index() -> None:
    """Same names, same defaults: a stage hands one to the other."""
    for member in get_args(get_args(ApproximateIndex)[0]):
        chosen = member()
        assert KINDS[chosen.kind](**chosen.model_dump(exclude={"kind"})) == KINDS[chosen.kind]()
        assert EvaluateSettings.model_validate({"approximate": {"kind": chosen.kind}}).approximate == chosen
    for wrong in ({"code_bytes": 0}, {"refine": 0}, {"probes": 0}, {"lists": 0}, {"neighbours": 16}):
        with pytest.raises(ValidationError):
            EvaluateSettings.model_validate({"approximate": {"kind": "ivf_pq", **wrong}})


def test_settings_are_declared() -> None:
    assert dataclasses.asdict(Ivf()) == {"lists": None, "probes": 64, "seed": 1234, "build_threads": 1}
    exact = Protocol("test", (1,), 100, 0.95, 0)
    settings = [Ivf(), Ivf(probes=8), Ivf(lists=9), Hnsw(), Hnsw(search_width=8), IvfPq(), IvfPq(code_bytes=64), IvfPq(refine=None), IvfPq(seed=1)]
    hashes = {exact.hash(), *(dataclasses.replace(exact, search=declared(setting)).hash() for setting in settings)}
    assert len(hashes) == 10
    assert declared(Hnsw()) == (
        "approximate, hnsw: neighbours 32, build_width 100, search_width 64, build_threads 1; candidates scored and ordered as in exact search"
    )
    assert build(GALLERY, IDS, Ivf()).engine.nlist == 3000 // LEAST_PER_LIST
