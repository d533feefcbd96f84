"""The official numbers of benchmarks, against their definitions in plain Python."""

import math

import numpy as np
import pytest

from tests.oracles import official as oracle
from tests.oracles import retrieval
from tests.vectors import gaussian, unit
from unseen.evaluation.mteb import TASKS, mteb_scores, runs
from unseen.evaluation.official import OFFICIAL, Vectors, official
from unseen.runtime.errors import UserError

Qrels = dict[str, dict[str, int]]
Given = tuple[Qrels, Vectors, Vectors]


def drawn(seed: int, measure: str) -> Given:
    """A task with ties, copies, relevant ids that the corpus lacks, and queries without a relevant image.
    Ids are not in ascending order, and those of queries also occur in the corpus. In each third task, all
    similarities are negative."""
    random = np.random.default_rng(seed)
    queries, rows = int(random.integers(2, 12)), int(random.integers(12, 30))
    x, y = (unit(random.integers((-1, -2), (3, 2), (n, 2)) + 0.001) for n in (queries, rows))
    corpus_ids = random.permutation([f"image {n}" for n in range(rows)])
    query_ids = random.permutation([f"image {n}" for n in range(queries)])
    if seed % 3 == 0:
        x, y = -np.abs(x), np.abs(y)
    if measure == "recall":
        query_ids, x = corpus_ids[:queries], y[:queries]
    qrels: Qrels = {}
    for place, query in enumerate(query_ids.tolist()):
        lines = {row: int(random.random() < 0.3) for row in corpus_ids.tolist() if random.random() < 0.8}
        lines |= {"absent": 1} if place % 3 == 0 else {}
        if place % 4 != 1:
            qrels[query] = lines
    qrels[str(query_ids[0])] |= {str(corpus_ids[-1]): 1, str(corpus_ids[-2]): 0}
    return qrels, (query_ids, x), (corpus_ids, y)


def expected(measure: str, depths: tuple[int, ...], given: Given) -> dict[str, float]:
    """The means by definition."""
    qrels, (query_ids, x), (corpus_ids, y) = given
    numbers = np.argsort(np.argsort(corpus_ids)).tolist()
    vectors, values, answers = y.astype(float).tolist(), [], []
    for query, vector in zip(query_ids.tolist(), x.astype(float).tolist(), strict=True):
        lines = qrels.get(query, {})
        itself = numbers[corpus_ids.tolist().index(query)] if measure == "recall" else -1
        ranking = retrieval.ranking(vector, itself, vectors, numbers)
        names = [str(corpus_ids[place]) for _, _, place in ranking]
        rows = [(row[0], int(lines.get(name, 0) > 0), name) for row, name in zip(ranking, names, strict=True)]
        relevant = sum(score > 0 for score in lines.values())
        if measure == "recognition":
            answers.append((rows[0][0], query, rows[0][1], relevant > 0))
        elif query in qrels and measure == "recall":
            values.append([oracle.recall(rows, k) for k in depths])
        elif query in qrels and measure == "revisited":
            if (scores := oracle.revisited_level(rows, lines)) is not None:
                values.append([scores[0], *scores[1]])
        elif query in qrels:
            ap = oracle.average_precision if measure == "average" else oracle.area_of_thresholds
            values.append([ap(rows, relevant, k) for k in depths])
    if measure == "recognition":
        known = [answer for answer in answers if answer[3]]
        gaps = [
            oracle.global_average_precision([each[:3] for each in some], len(known))
            for some in (answers, known)
        ]
        return {
            "accuracy": sum(a[2] for a in known) / len(known),
            "gap": gaps[0],
            "gap_known": gaps[1],
            "queries": len(known),
            "others": len(answers) - len(known),
        }
    metrics = {
        "recall": [f"recall_at_{k}" for k in depths],
        "revisited": ["map", *(f"mp_at_{k}" for k in depths)],
    }
    means = [math.fsum(column) / len(values) for column in zip(*values, strict=True)]
    return dict(zip(metrics.get(measure, [f"map_at_{k}" for k in depths]), means, strict=True))


@pytest.mark.parametrize(
    ("name", "depths"),
    [
        ("SOPI2IRetrieval", (1, 10, 100, 1000)),
        ("GLDv2I2IRetrieval", (100,)),
        ("GLDv2I2IRetrieval", (5,)),  # a cut in the middle of the ranking
        ("ILIAS", (1000,)),
        ("ILIAS", (5,)),  # and of equal similarities
        ("ROxfordHardI2IRetrieval", (1, 5, 10)),
        ("METI2IRetrieval", (1,)),
    ],
)
def test_equals_the_definition(name: str, depths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = OFFICIAL[name]
    monkeypatch.setitem(OFFICIAL, name, benchmark._replace(depths=depths))
    compared = 0
    for seed in range(60):
        given = drawn(seed, benchmark.measure)
        result = official(name, *given)
        definition = expected(benchmark.measure, depths, given)
        for metric, value in definition.items():
            assert result[metric] == pytest.approx(value, abs=1e-12), (seed, metric)
        compared += len(definition)
    assert compared >= 60


def test_every_task_has_an_official_number_with_its_source() -> None:
    assert OFFICIAL.keys() == TASKS.keys()
    assert all(each.source and each.remark for each in OFFICIAL.values())


def test_intervals_are_over_the_queries_of_one_class() -> None:
    """Copies of each query add nothing to what is known of the mean."""
    x, y = np.repeat(gaussian(20, 8), 2, axis=0), gaussian(200, 8, seed=1)
    ids = np.array([f"row {n:03}" for n in range(200)])
    qrels = {f"{copy} {n}": {f"row {n + 20 * k:03}": 1 for k in range(5)} for n in range(20) for copy in "ab"}
    names = np.array(list(qrels))
    results = [
        official("GLDv2I2IRetrieval", qrels, (names[chosen], x[chosen]), (ids, y))
        for chosen in (slice(None), slice(0, None, 2))
    ]
    for end in ("map_at_100", "map_at_100_low", "map_at_100_high"):
        assert results[0][end] == pytest.approx(results[1][end], abs=1e-9)
    assert results[0]["map_at_100_low"] < results[0]["map_at_100"] < results[0]["map_at_100_high"]


def test_says_what_the_data_do_not_define() -> None:
    qrels, queries, corpus = drawn(0, "revisited")
    photos = (np.char.add("photo ", queries[0]), queries[1])
    alone = {query: dict.fromkeys(lines, 1) for query, lines in qrels.items()}
    assert "junk" in official("RParisEasyI2IRetrieval", alone, queries, corpus)["reason"]
    assert "left out" in official("RP2kI2IRetrieval", qrels, photos, corpus)["reason"]
    none = {query: dict.fromkeys(lines, 0) for query, lines in qrels.items()}
    with pytest.raises(UserError, match="No query has a relevant image"):
        official("ILIAS", none, queries, corpus)


def test_junk_images_leave_the_official_ranking() -> None:
    """docs/mteb.md: the junk image is nearest, and has no line in qrels."""
    corpus_ids, y = np.array(["junk", "other", "right"]), unit(np.array([[1.0, 0], [0, 1], [0.8, 0.6]]))
    qrels = {"query": {"right": 1, "other": 0}}
    result = official("ROxfordHardI2IRetrieval", qrels, (np.array(["query"]), y[:1]), (corpus_ids, y))
    assert (result["map"], result["mp_at_1"], result["queries"]) == (1.0, 1.0, 1)
    assert mteb_scores(qrels, runs(np.array(["query"]), y[:1], corpus_ids, y), False)["map_at_5"] == 0.5
