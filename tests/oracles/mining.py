"""Hard negatives by a walk down the ranked pool, one image at a time, in float64."""

import numpy as np


def walk(query: np.ndarray, cluster: int, pool: np.ndarray, clusters: list[int], count: int) -> list[int]:
    """Positions in the pool of the first `count` images of new clusters. The cluster of the query is
    excluded."""
    products = [sum(float(a) * float(b) for a, b in zip(query, candidate, strict=True)) for candidate in pool]
    seen_clusters, positions = {cluster}, []
    for place in sorted(range(len(pool)), key=lambda place: -products[place]):
        if clusters[place] not in seen_clusters:
            seen_clusters.add(clusters[place])
            positions.append(place)
        if len(positions) == count:
            return positions
    raise AssertionError("too few clusters")
