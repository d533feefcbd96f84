"""Holm's procedure as it is described: step down until one hypothesis stands."""


def holm_rejects(p_values: list[float], alpha: float) -> list[bool]:
    rejected = [False] * len(p_values)
    for step, (p_value, which) in enumerate(sorted((p, place) for place, p in enumerate(p_values))):
        if p_value > alpha / (len(p_values) - step):
            break
        rejected[which] = True
    return rejected
