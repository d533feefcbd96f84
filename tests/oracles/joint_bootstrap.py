"""The bootstrap of a mean over seeds in loops: draw classes, pool their queries for every seed, average each
seed, average the seeds, take percentiles."""

import math


def resampled_means(values: list[list[float]], labels: list[int], draws: list[list[int]]) -> list[float]:
    """values: of each seed, of each query. draws: the classes of each resample, the same for every seed. A
    class that is drawn twice counts twice."""
    means = []
    for draw in draws:
        of_seeds = []
        for seed in values:
            pool = [
                value
                for drawn_class in draw
                for value, label in zip(seed, labels, strict=True)
                if label == drawn_class
            ]
            of_seeds.append(math.fsum(pool) / len(pool))
        means.append(math.fsum(of_seeds) / len(of_seeds))
    return means


def resampled_class_means(
    values: list[list[float]], labels: list[int], draws: list[list[int]]
) -> list[float]:
    """The same for means over classes: every drawn class has equal weight, for any number of queries."""
    means = []
    for draw in draws:
        of_seeds = []
        for seed in values:
            pools = [
                [value for value, label in zip(seed, labels, strict=True) if label == drawn_class]
                for drawn_class in draw
            ]
            of_seeds.append(math.fsum(math.fsum(pool) / len(pool) for pool in pools) / len(pools))
        means.append(math.fsum(of_seeds) / len(of_seeds))
    return means
