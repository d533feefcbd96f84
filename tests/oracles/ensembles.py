"""MLRC's numbers in pure Python from the embeddings of the members: nested loops over all ensembles, rankings
by sorting, no array library."""

import itertools
import math
import statistics

from tests.oracles import retrieval

# embeddings, labels, is_query, is_gallery; row ids are positions
Side = tuple[list[list[float]], list[int], list[bool], list[bool]]


def metrics(member: Side, recall_at: tuple[int, ...]) -> dict[str, float]:
    """Recall@K, R-precision and MAP@R of one set of embeddings, averaged over the queries with a relevant
    image."""
    embeddings, labels, is_query, is_gallery = member
    scores: dict[str, list[float]] = {}
    gallery = [row for row in range(len(labels)) if is_gallery[row]]
    for query in (row for row in range(len(labels)) if is_query[row]):
        candidates = [row for row in gallery if row != query]
        relevant = sum(labels[row] == labels[query] for row in candidates)
        if not relevant:
            continue
        order = sorted(
            candidates,
            key=lambda row, query=query: (
                -math.fsum(a * b for a, b in zip(embeddings[query], embeddings[row], strict=True)),
                row,
            ),
        )
        hits = [labels[row] == labels[query] for row in order]
        for k in recall_at:
            scores.setdefault(f"recall_at_{k}", []).append(float(any(hits[:k])))
        scores.setdefault("r_precision", []).append(sum(hits[:relevant]) / relevant)
        scores.setdefault("map_at_r", []).append(retrieval.ap_at_r(hits, relevant))
    return {name: statistics.fmean(values) for name, values in scores.items()}


def protocol(members: list[list[Side]], recall_at: tuple[int, ...]) -> dict[str, float]:
    """separated_ and concatenated_<metric>, and their population deviations `_std`, of
    members[model][repeat]."""
    single = [[metrics(side, recall_at) for side in repeats] for repeats in members]
    separated: dict[str, list[float]] = {}
    concatenated: dict[str, list[float]] = {}
    for choice in itertools.product(*(range(len(repeats)) for repeats in members)):
        for name in single[0][0]:
            separated.setdefault(name, []).append(
                statistics.fmean(single[model][repeat][name] for model, repeat in enumerate(choice))
            )
        chosen = [members[model][repeat] for model, repeat in enumerate(choice)]
        joined = [
            list(itertools.chain(*(side[0][row] for side in chosen))) for row in range(len(chosen[0][1]))
        ]
        for name, value in metrics((joined, *chosen[0][1:]), recall_at).items():
            concatenated.setdefault(name, []).append(value)
    flat = {}
    for kind, values in (("separated", separated), ("concatenated", concatenated)):
        for name, column in values.items():
            flat[f"{kind}_{name}"], flat[f"{kind}_{name}_std"] = (
                statistics.fmean(column),
                statistics.pstdev(column),
            )
    return flat
