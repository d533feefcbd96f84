"""Parameters and operations agree with those that a paper prints, and leave out what only training needs."""

from pathlib import Path

import pytest

from tests.params import resolve
from unseen.config.document import Params
from unseen.experiments.catalogue import definitions
from unseen.experiments.printed.model import printed_cost, rows
from unseen.methods.cost import cost_of

PARAMS = Params(Path(__file__).resolve().parents[2] / "params.yaml")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "millions"),  # by how many the numbers of parameters may differ
    [("r50", 0.6), ("deit-s", 0.4), ("deit-s-distilled", 0.4), ("r101", 3.6), ("deit-b", 1.3)],
)
def test_costs_equal_those_of_irt(method: str, millions: float) -> None:
    """The paper counts the operations of norms too, and the classifier of DeiT-B. For ResNet-101 it prints
    46M; torchvision's has 44.5 with its classifier and 42.5 without it."""
    name = f"irt-table-1-{method}"
    recipe = definitions(PARAMS, name, datasets=("cub",)).layers("cub", name).recipe()
    printed, cost = printed_cost(recipe.backbone.name, recipe.input.size), cost_of(recipe)
    assert printed is not None
    assert cost.parameters / 1e6 == pytest.approx(float(printed.parameters[:-1]), abs=millions)
    assert cost.flops / 1e9 == pytest.approx(printed.gflops, rel=0.02)


@pytest.mark.slow
def test_operations_at_384_pixels_are_those_of_irt_table_8() -> None:
    of_table = [row for row in rows() if (row.paper, row.table) == ("irt", "8") and row.method]
    (network,) = {row.recipe["backbone.name"] for row in of_table}
    recipe = resolve(PARAMS, "landmarks", "irt_l", {"backbone.name": network, "input.size": 384})
    printed = printed_cost(network, 384)
    assert printed is not None
    assert printed_cost(network, 224) is None
    assert cost_of(recipe).flops / 1e9 == pytest.approx(printed.gflops, rel=0.02)


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
