"""Parameters and operations agree with those that a paper prints, and leave out what only training needs."""

from pathlib import Path

import pytest

from tests.params import resolve
from unseen.config.document import Params
from unseen.methods.cost import cost_of

PARAMS = Params(Path(__file__).resolve().parents[2] / "params.yaml")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "parameters", "flops"),
    [("snca", 23, 8.3), ("irt_l", 22, 8.4)],  # R50 and DeiT-S in IRT table 1
)
def test_costs_equal_those_of_irt(method: str, parameters: float, flops: float) -> None:
    """The paper counts a classifier and the operations of norms too."""
    cost = cost_of(resolve(PARAMS, "cub", method))
    assert cost.parameters / 1e6 == pytest.approx(parameters, abs=0.6)
    assert cost.flops / 1e9 == pytest.approx(flops, rel=0.02)


@pytest.mark.slow
def test_counts_only_what_the_embedding_needs() -> None:
    """A branch of the training and proxies cost nothing; a projection has its size."""
    crt = resolve(PARAMS, "parts", "crt")
    larger = resolve(PARAMS, "parts", "crt", {"auxiliary.prototypes": 64, "auxiliary.dim": 512})
    assert cost_of(crt) == cost_of(larger)
    average = cost_of(resolve(PARAMS, "parts", "ms", {"dim": 64}))
    wider = cost_of(resolve(PARAMS, "parts", "ms", {"dim": 128}))
    channels = (wider.parameters - average.parameters) // 64 - 1  # and a bias
    assert wider.flops - average.flops == 2 * 64 * channels
    anchor = cost_of(resolve(PARAMS, "parts", "proxy_anchor", {"dim": 64}))
    assert anchor.parameters == average.parameters, "no proxies"
