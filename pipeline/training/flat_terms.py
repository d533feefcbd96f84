"""Terms of a loss that a training does not lower, such as the zero-shot loss of GSP on the built-in set."""

from collections.abc import Mapping, Sequence

FLAT = 0.01
_REMEDIES = {"zero_shot": " docs/papers.md lists the changes with which it learns."}


def is_flat(runs: Sequence[Sequence[Mapping[str, float]]], term: str) -> bool:
    """Whether the values of a term, in the rows of histories, stay within FLAT of the first one in each run
    of two points or more."""
    values = [[row[term] for row in rows] for rows in runs]
    return all(len(of_run) > 1 and max(of_run) - min(of_run) <= FLAT * abs(of_run[0]) for of_run in values)


def remark(term: str, method: str) -> str:
    """What the report and the log of a training say about a flat term."""
    name = term.replace("_", " ")
    return (
        f"Term {name} of {method} stays within {FLAT:.0%} of its first value: this training does not lower "
        f"it.{_REMEDIES.get(term, '')}"
    )
