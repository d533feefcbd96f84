"""Coverage of the intervals over classes and seeds, and errors of the rule for "better", by simulation.

    python benchmarks/coverage.py [--trials 2000]

A trial draws the classes, their numbers of images and the trainings of two methods of equal expectation. An
interval covers if it contains 0; a verdict is false if it names a better method. Sizes are equal (10 images),
unequal (2 to 20) or skewed (lognormal, sigma 1). The differences of the classes are normal or skewed
(exponential) with deviation 1; an image adds 1, a training 0.5 in each class and the common effect of SEEDS
in all classes. The verdicts have no least effect. `percentiles` are those of resampled classes and seeds (the
pigeonhole bootstrap, joined with Student's t over seeds).

The second table embeds images of drawn classes with two methods, which search the drawn gallery: MAP@R, with
methods of equal and of different expectation, and of the trials whose better method is above a floor. The
third has families of ten comparisons. docs/statistics.md has the result.
"""

import argparse
from collections.abc import Iterator

import numpy as np
from timing import Ratio, save

from unseen.evaluation.metrics import Rows, per_query
from unseen.evaluation.statistics.better import Verdict, compare, decide
from unseen.evaluation.statistics.seeds import over_seeds
from unseen.evaluation.statistics.table import Table, of_queries

CLASSES = (8, 12, 16, 20, 41, 100)
SEEDS = ((1, 0.0), (3, 0.0), (3, 0.3), (5, 0.0), (5, 0.3), (5, 1.0))
BATCH, FLIPS, RESAMPLES = 50, 1000, 1000
DIM, IMAGES = 8, 10


def sizes(random: np.random.Generator, kind: str, classes: int) -> np.ndarray:
    if kind == "equal":
        return np.full(classes, 10.0)
    if kind == "unequal":
        return random.integers(2, 21, classes).astype(np.float64)
    return np.floor(2 + np.exp(2 + random.standard_normal(classes)))


def trials(
    random: np.random.Generator, kind: str, values: str, classes: int, seeds: int, common: float, count: int
) -> Iterator[Table]:
    """Tables of BATCH trials, whose row 0 is the first method and whose other rows are second methods."""
    for _ in range(count // BATCH):
        images = sizes(random, kind, classes)
        shape = BATCH, 1, 1, classes
        of_class = random.standard_normal(shape) if values == "normal" else random.exponential(size=shape) - 1
        of_class = of_class + random.standard_normal(shape) / np.sqrt(images)
        of_training = common * random.standard_normal((BATCH, 1, seeds, 1))
        second = of_class + of_training + 0.5 * random.standard_normal((BATCH, 1, seeds, classes))
        yield Table(np.concatenate([np.zeros_like(second[:1]), second]), images[None])


def verdicts(table: Table) -> list[Verdict]:
    """One verdict a trial, each a family of its own."""
    compared = compare(table, [(0, row) for row in range(1, len(table.values))], FLIPS)
    return [decide([each], [0.0], [None])[0] for each in compared]


def percentiles(random: np.random.Generator, table: Table) -> list[tuple[float, float]]:
    """Intervals of resampled classes and seeds, joined with Student's t over seeds."""
    assert table.images is not None
    values, images = table.values[1:, 0], table.images[0]
    _, seeds, classes = values.shape
    weights = random.multinomial(classes, np.full(classes, 1 / classes), RESAMPLES) * images
    drawn = random.multinomial(seeds, np.full(seeds, 1 / seeds), RESAMPLES) / seeds
    averages = np.einsum("kc,tsc,ks->tk", weights, values, drawn, optimize=True) / weights.sum(axis=1)
    ends = np.quantile(averages, [0.025, 0.975], axis=1).T.tolist()
    if seeds > 1:
        students = [over_seeds(each, 0.95) for each in table.by_seed()[1:]]
        ends = [
            (min(low, each.low), max(high, each.high))
            for (low, high), each in zip(ends, students, strict=True)
        ]
    return ends


def simulated(count: int, least: dict[int, float]) -> Iterator[str]:
    """Coverage of percentiles → of the interval; false verdicts. Writes the least coverage of each number of
    classes into `least`."""
    yield "| seeds, common effect | sizes | values | " + " | ".join(map(str, CLASSES)) + " |"
    yield "|" + " --- |" * (3 + len(CLASSES))
    for seeds, common in SEEDS:
        for kind in ("equal", "unequal", "skewed"):
            for values in ("normal", "skewed"):
                cells = []
                for classes in CLASSES:
                    random = np.random.default_rng([seeds, int(10 * common), classes])
                    old, new, false = [], [], []
                    for table in trials(random, kind, values, classes, seeds, common, count):
                        old += [low <= 0 <= high for low, high in percentiles(random, table)]
                        judged = verdicts(table)
                        new += [covers(verdict, 0.0) for verdict in judged]
                        false += [verdict.sign != 0 for verdict in judged]
                    cells.append(f"{share(old)} → {share(new)}; {share(false)}")
                    least[classes] = min(least.get(classes, 1.0), float(np.mean(new)))
                yield f"| {seeds}, {common:g} | {kind} | {values} | {' | '.join(cells)} |"


def retrieval(count: int) -> Iterator[str]:
    """The gallery consists of the images of the drawn classes."""
    yield "| classes | equal methods | different methods | those above the floor | false verdicts |"
    yield "| --- | --- | --- | --- | --- |"
    for classes in CLASSES[:-1]:
        random = np.random.default_rng(classes)
        compared = {noise: [_searched(random, classes, noise) for _ in range(count)] for noise in (1.0, 0.8)}
        cells, selected, false = [], [], 0
        for results in compared.values():
            expected = float(np.mean([each.comparison.difference for each in results]))
            covered = [covers(each, expected) for each in results]
            cells.append(share(covered))
            selected += [
                is_covered
                for each, is_covered in zip(results, covered, strict=True)
                if each.outcome != "below the floor"
            ]
        false = [each.sign != 0 for each in compared[1.0]]
        yield f"| {classes} | {' | '.join(cells)} | {share(selected)} | {share(false)} |"


def _searched(random: np.random.Generator, classes: int, noise: float) -> Verdict:
    """MAP@R of two methods; a floor has more noise than the first, so that it is above in a part of the
    trials."""
    labels = np.repeat(np.arange(classes), IMAGES)
    centres = random.standard_normal((classes, DIM))
    values = []
    for scale in (1.0, noise, 1.1):
        seen = centres + 0.3 * random.standard_normal((classes, DIM))
        vectors = seen[labels] + scale * random.standard_normal((len(labels), DIM))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        rows = Rows(np.arange(len(labels)), labels, vectors.astype(np.float32))
        values.append(per_query(rows, rows, (1,)).ap_at_r[None])
    (compared,) = compare(of_queries(values[:2], labels), [(0, 1)], FLIPS)
    return decide([compared], [0.0], [float(values[2].mean())])[0]


def families(count: int) -> Iterator[str]:
    """The share of families of ten comparisons without a difference in which any verdict is false."""
    yield "| seeds, common effect | " + " | ".join(map(str, CLASSES)) + " |"
    yield "|" + " --- |" * (1 + len(CLASSES))
    for seeds, common in SEEDS:
        cells = []
        for classes in CLASSES:
            random, false = np.random.default_rng(classes), []
            for table in trials(random, "unequal", "normal", classes, seeds, common, 5 * count):
                compared = compare(table, [(0, row) for row in range(1, BATCH + 1)], FLIPS)
                for start in range(0, BATCH, 10):
                    judged = decide(compared[start : start + 10], [0.0] * 10, [None] * 10)
                    false.append(any(verdict.sign for verdict in judged))
            cells.append(share(false))
        yield f"| {seeds}, {common:g} | {' | '.join(cells)} |"


def covers(verdict: Verdict, expected: float) -> bool:
    low, high = verdict.comparison.low, verdict.comparison.high
    return low is not None and high is not None and low <= expected <= high


def share(of: list[bool]) -> str:
    return f"{100 * np.mean(of):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=2000)
    count = parser.parse_args().trials
    least: dict[int, float] = {}
    for lines in (simulated(count, least), retrieval(count // 4), families(count)):
        for line in lines:
            print(line, flush=True)
        print()
    few, many = (min(least[classes] for classes in CLASSES if (classes < 16) == is_few) for is_few in (1, 0))
    ratios = {
        "least coverage, 8 to 15 classes": Ratio(few, at_least=0.92),
        "least coverage, from 16 classes on": Ratio(many, at_least=0.925),
    }
    save("coverage", {}, ratios)


if __name__ == "__main__":
    main()
