"""The official numbers of benchmarks by definition: one walk along each ranking. Pure Python and float64."""

from tests.oracles import revisited

Row = tuple[float, int, str]  # similarity, hit, id; best first


def recall(rows: list[Row], k: int) -> float:
    return float(any(hit for _, hit, _ in rows[:k]))


def average_precision(rows: list[Row], relevant: int, k: int) -> float:
    """Of the Google Landmarks retrieval challenge."""
    total, found = 0.0, 0
    for rank, (_, hit, _) in enumerate(rows[:k], start=1):
        found += hit
        if hit:
            total += found / rank
    return total / min(relevant, k) if relevant else 0.0


def area_of_thresholds(rows: list[Row], relevant: int, k: int) -> float:
    """Of ILIAS: precision times the step of recall, at each similarity that occurs in the first k rows."""
    total, before = 0.0, 0
    for threshold in sorted({similarity for similarity, _, _ in rows[:k]}, reverse=True):
        above = [hit for similarity, hit, _ in rows[:k] if similarity >= threshold]
        total += (sum(above) - before) * sum(above) / len(above)
        before = sum(above)
    return total / min(relevant, k) if relevant else 0.0


def revisited_level(rows: list[Row], lines: dict[str, int]) -> tuple[float, list[float]] | None:
    """Of the level at which the relevant rows are easy and the rows without a line junk."""
    names = [name for _, _, name in rows]
    absent = range(len(rows), len(rows) + len(lines))  # numbers of relevant rows that are not ranked
    easy = [names.index(name) for name, score in lines.items() if score > 0 and name in names]
    if not easy:
        return (0.0, [0.0] * 3) if any(score > 0 for score in lines.values()) else None
    easy += [
        number for number, name in zip(absent, lines, strict=True) if lines[name] > 0 and name not in names
    ]
    junk = [place for place, name in enumerate(names) if name not in lines]
    lists = {"easy": easy, "hard": [], "junk": junk}
    return revisited.level(list(range(len(rows))), lists, "easy", (1, 5, 10))


def global_average_precision(answers: list[tuple[float, str, int]], known: int) -> float:
    """Of (similarity, query, whether the nearest row is right): pairs of a right answer and one not after."""
    total = 0.0
    for similarity, query, right in answers:
        key = (-max(0.0, similarity), query)
        before = [other for s, name, other in answers if (-max(0.0, s), name) <= key]
        total += right * sum(before) / len(before)
    return total / known
