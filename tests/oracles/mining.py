"""Hard negatives by walking down the ranked pool, one image at a time, in float64: the procedure as it is
described."""

import numpy as np


def walk(query: np.ndarray, cluster: int, pool: np.ndarray, clusters: list[int], count: int) -> list[int]:
    """Positions in the pool of the first `count` images that are of no cluster met before, that of the query
    included."""
    products = [sum(float(a) * float(b) for a, b in zip(query, other, strict=True)) for other in pool]
    met, found = {cluster}, []
    for place in sorted(range(len(pool)), key=lambda place: -products[place]):
        if clusters[place] not in met:
            met.add(clusters[place])
            found.append(place)
        if len(found) == count:
            return found
    raise AssertionError("too few clusters")
