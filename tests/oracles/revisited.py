"""Revisited Oxford and Paris as the Oxford buildings evaluation has it: one walk down the ranked list, area
added at each step. Pure Python."""

LEVELS = {"easy": ("easy", "junk hard"), "medium": ("easy hard", "junk"), "hard": ("hard", "junk easy")}


def level(
    ranking: list[int], lists: dict[str, list[int]], name: str, precision_at: tuple[int, ...]
) -> tuple[float, list[float]] | None:
    """AP and P@k of one query; None where nothing is sought."""
    sought, removed = (set().union(*(lists[part] for part in parts.split())) for parts in LEVELS[name])
    if not sought:
        return None
    area, recall_before, precision_before = 0.0, 0.0, 1.0
    looked_at = found = 0
    hits = []
    for identity in ranking:
        if identity in removed:
            continue
        looked_at += 1
        found += identity in sought
        hits.append(identity in sought)
        recall, precision = found / len(sought), found / looked_at
        area += (recall - recall_before) * (precision_before + precision) / 2
        recall_before, precision_before = recall, precision
    last = max(place for place, hit in enumerate(hits, start=1) if hit)
    return area, [sum(hits[: min(k, last)]) / min(k, last) for k in precision_at]
