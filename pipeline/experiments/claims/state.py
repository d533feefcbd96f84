"""The state of a claim in a list: the verdict on its present definition, or why there is none."""

from unseen.experiments.claims.built_in import built_in
from unseen.experiments.claims.built_in import definition as built_in_definition
from unseen.experiments.claims.claim import claims
from unseen.experiments.claims.results import Comparison, Results

NOT_RUN = "not run"
EXCLUDED = "-"


def state_of(name: str, results: Results) -> str:
    """The verdict on a claim with frozen networks, or `not run` without a result of its present
    definition."""
    return _state(results.claims.get(name), claims().definition(name))


def built_in_state_of(name: str, results: Results) -> str:
    """The verdict on a claim with whole networks, `not run` without a result of its present definition, or
    `-` for a claim that cannot be put to this setting."""
    if name in built_in().excluded:
        return EXCLUDED
    return _state(results.claims.get(name), built_in_definition(claims(), built_in(), name))


def _state(result: Comparison | None, definition: str) -> str:
    return NOT_RUN if result is None or result.definition != definition else result.verdict
