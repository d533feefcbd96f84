"""Holm's procedure by its description: reject step by step until one hypothesis is not rejected."""


def holm_rejects(p_values: list[float], alpha: float) -> list[bool]:
    rejected = [False] * len(p_values)
    for step, (p_value, index) in enumerate(sorted((p, place) for place, p in enumerate(p_values))):
        if p_value > alpha / (len(p_values) - step):
            break
        rejected[index] = True
    return rejected
