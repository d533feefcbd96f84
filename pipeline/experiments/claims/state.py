"""The state of a claim in a list: the verdict on its present definition, or why there is none."""

from unseen.experiments.claims.claim import claims
from unseen.experiments.claims.results import Comparison, Results
from unseen.experiments.claims.whole_photos import definition as whole_definition
from unseen.experiments.claims.whole_photos import whole_photos

NOT_RUN = "not run"
EXCLUDED = "-"


def state_of(name: str, results: Results) -> str:
    """The verdict on a claim with frozen networks, or `not run` without a result of its present
    definition."""
    return _state(results.claims.get(name), claims().definition(name))


def whole_state_of(name: str, results: Results) -> str:
    """As state_of with whole networks, or `-` for a claim that cannot be put to this setting."""
    if name in whole_photos().excluded:
        return EXCLUDED
    return _state(results.claims.get(name), whole_definition(claims(), whole_photos(), name))


def _state(result: Comparison | None, definition: str) -> str:
    return NOT_RUN if result is None or result.definition != definition else result.verdict
