"""Retrieval by definition, in pure Python and float64: every pair, every rank, no arrays."""

import struct
from fractions import Fraction
from math import log

Vector = list[float]


def similarity(a: Vector, b: Vector) -> float:
    """The inner product, summed in float64 and rounded to float32."""
    total = 0.0
    for x, y in zip(a, b, strict=True):
        total += x * y
    return struct.unpack("<f", struct.pack("<f", total))[0]


def ranking(
    query: Vector, query_id: int, gallery: list[Vector], gallery_ids: list[int]
) -> list[tuple[float, int, int]]:
    """(similarity, id, position in the gallery) of every row except the query: similarity descending, then id
    ascending."""
    rows = [
        (similarity(query, row), identity, place)
        for place, (row, identity) in enumerate(zip(gallery, gallery_ids, strict=True))
    ]
    return sorted((row for row in rows if row[1] != query_id), key=lambda row: (-row[0], row[1]))


def recall(hits: list[bool], k: int) -> float:
    return 1.0 if True in hits[:k] else 0.0


def r_precision(hits: list[bool], relevant: int) -> float:
    return sum(hits[:relevant]) / relevant


def ap_at_r(hits: list[bool], relevant: int) -> float:
    total = 0.0
    for j in range(1, relevant + 1):
        if hits[j - 1]:
            total += sum(hits[:j]) / j
    return total / relevant


def average_precision(hits: list[bool]) -> float:
    """Over the complete ranking, without interpolation: the mean over the relevant rows of the precision at
    their rank."""
    total = 0.0
    for j in range(1, len(hits) + 1):
        if hits[j - 1]:
            total += sum(hits[:j]) / j
    return total / sum(hits)


def trapezoid_ap(hits: list[bool]) -> float:
    """The area under precision over recall with straight lines between hits, as in the revisited Oxford and
    Paris benchmarks."""
    total, hit_count = 0.0, 0
    for rank, hit in enumerate(hits):  # from 0
        if hit:
            precision_before = 1.0 if rank == 0 else hit_count / rank
            hit_count += 1
            total += (precision_before + hit_count / (rank + 1)) / 2
    return total / sum(hits)


def metrics(
    embeddings: list[Vector], labels: list[int], ids: list[int], recall_at: tuple[int, ...]
) -> dict[str, float]:
    """Means over the rows with another row of their class. Each row is searched among all other rows."""
    values: dict[str, list[float]] = {}
    for vector, label, identity in zip(embeddings, labels, ids, strict=True):
        hits = [labels[place] == label for _, _, place in ranking(vector, identity, embeddings, ids)]
        relevant = sum(hits)
        if relevant == 0:
            continue
        for k in recall_at:
            values.setdefault(f"recall_at_{k}", []).append(recall(hits, k))
        values.setdefault("r_precision", []).append(r_precision(hits, relevant))
        values.setdefault("map_at_r", []).append(ap_at_r(hits, relevant))
        values.setdefault("map", []).append(average_precision(hits))
    return {name: sum(column) / len(column) for name, column in values.items()}


def nmi(labels: list[int], clusters: list[int]) -> float:
    """I(U; V) over the mean of the entropies, from the joint frequencies."""
    n = len(labels)

    def entropy(values: list[int]) -> float:
        return -sum(values.count(v) / n * log(values.count(v) / n) for v in set(values))

    shared = 0.0
    pairs = list(zip(labels, clusters, strict=True))
    for u, v in set(pairs):
        joint = pairs.count((u, v)) / n
        shared += joint * log(joint / (labels.count(u) / n * clusters.count(v) / n))
    mean = (entropy(labels) + entropy(clusters)) / 2
    return shared / mean if mean else 1.0


def chance_recall_at_1(labels: list[int]) -> Fraction:
    """Mean recall at 1 of rankings in random order."""
    counts = [labels.count(label) for label in labels]
    assert all(count > 1 for count in counts)
    return sum((Fraction(count - 1, len(labels) - 1) for count in counts), Fraction(0)) / len(labels)
