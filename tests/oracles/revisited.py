"""Revisited Oxford and Paris by the Oxford buildings evaluation: one walk down the ranked list that adds area
at each step. Pure Python."""

LEVELS = {"easy": ("easy", "junk hard"), "medium": ("easy hard", "junk"), "hard": ("hard", "junk easy")}


def level(
    ranking: list[int], lists: dict[str, list[int]], name: str, precision_at: tuple[int, ...]
) -> tuple[float, list[float]] | None:
    """AP and P@k of one query; None without relevant images."""
    relevant, removed = (set().union(*(lists[part] for part in parts.split())) for parts in LEVELS[name])
    if not relevant:
        return None
    area, recall_before, precision_before = 0.0, 0.0, 1.0
    rank = hit_count = 0
    hits = []
    for identity in ranking:
        if identity in removed:
            continue
        rank += 1
        hit_count += identity in relevant
        hits.append(identity in relevant)
        recall, precision = hit_count / len(relevant), hit_count / rank
        area += (recall - recall_before) * (precision_before + precision) / 2
        recall_before, precision_before = recall, precision
    last = max(place for place, hit in enumerate(hits, start=1) if hit)
    return area, [sum(hits[: min(k, last)]) / min(k, last) for k in precision_at]
