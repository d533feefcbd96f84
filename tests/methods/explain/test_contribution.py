"""Contributions are the terms of a similarity: exact sums, finite differences, the maps of all methods."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.methods.small import CLASSES, METHODS, SAMPLES, batch, recipe
from unseen.methods.baseline import Baseline
from unseen.methods.build import initial_method
from unseen.methods.explain.contribution import NotNormalised, contributions
from unseen.methods.explain.weights import PositionWeights, position_functions
from unseen.methods.method import Outputs, unit

WIDE = {"name": "test_resnet", "arguments": {"output_stride": 8}}  # maps of 4 x 4


def built(method: str, **blocks: Any) -> Any:
    settings = recipe(method, backbone=WIDE, **blocks) if method != "irt" else recipe(method, **blocks)
    torch.manual_seed(3)
    network = initial_method(settings, CLASSES, SAMPLES, seed=0).double().eval()
    for parameter in network.parameters():  # no zero biases, no attention that is the identity
        parameter.data += 0.05 * torch.randn_like(parameter)
    return network.requires_grad_(False)


def images() -> Tensor:
    return batch(dtype=torch.float64)[0][:3]


def references(dim: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return functional.normalize(torch.randn(3, dim, dtype=torch.float64, generator=generator))


def computed(method: Any, reference: Tensor | None = None) -> PositionWeights:
    weights = contributions(method, images(), reference)
    assert weights is not None
    return weights


def test_average_pooling_divides_the_similarity_by_position() -> None:
    method = built("baseline", projection={"bias": True})
    reference = references(8)
    features = method.backbone(images()).maps[-1].flatten(2)
    linear = method.head.projection.linear
    weights = computed(method, reference)
    assert (weights.height, weights.width) == (4, 4)
    for image in range(3):
        vector = linear(features[image].mean(1))
        for position in range(16):
            term = (linear.weight @ features[image, :, position]) @ reference[image] / (16 * vector.norm())
            torch.testing.assert_close(weights.weights[image, position], term)
        constant = linear.bias @ reference[image] / vector.norm()
        similarity = method.embed(images())[image] @ reference[image]
        torch.testing.assert_close(weights.weights[image].sum() + constant, similarity)


@pytest.mark.parametrize(
    "blocks",
    [
        {"pooling": {"name": "average"}},
        {"pooling": {"name": "max"}},
        {"pooling": {"name": "gem"}},
        {"pooling": {"name": "average_max"}},
        {"projection": {"layer_norm": True, "bias": False}},
    ],
    ids=str,
)
def test_contributions_sum_to_the_similarity_without_a_bias(blocks: dict[str, Any]) -> None:
    method = built("baseline", **{"projection": {"bias": False}, **blocks})
    reference = references(8)
    similarity = (method.embed(images()) * reference).sum(1)
    # The generalized mean clamps features at 1e-6.
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if blocks.get("pooling") == {"name": "gem"} else {}
    torch.testing.assert_close(computed(method, reference).weights.sum(1), similarity, **tolerance)
    ones = torch.ones(3, dtype=torch.float64)
    torch.testing.assert_close(computed(method).weights.sum(1), ones, **tolerance)


def vector_of_crt(method: Any, features: tuple[Tensor, ...]) -> Tensor:
    vector: Tensor = method.branches(features[-1], 1)[0]
    return vector


def vector_of_gsp(method: Any, features: tuple[Tensor, ...]) -> Tensor:
    vector: Tensor = method.head.pooling(features[-1])[0]
    return vector


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "vector_of"), [("crt", vector_of_crt), ("gsp", vector_of_gsp)], ids=["crt", "gsp"]
)
def test_a_contribution_is_the_change_of_the_similarity_with_the_feature(
    name: str, vector_of: Callable[[Any, tuple[Tensor, ...]], Tensor]
) -> None:
    method = built(name)
    if name == "gsp":
        method.head.pooling.gsp.initialized.fill_(True)
    reference, step = references(8), 1e-5
    features = method.backbone(images()).maps
    norm = vector_of(method, features).norm(dim=1)
    weights = computed(method, reference).weights
    for position in range(16):
        ends = []
        for sign in (1, -1):
            moved = features[-1].clone()
            moved[:, :, position // 4, position % 4] *= 1 + sign * step
            ends.append((vector_of(method, (moved,)) * reference).sum(1) / norm)
        expected = (ends[0] - ends[1]) / (2 * step)
        torch.testing.assert_close(weights[:, position], expected, rtol=1e-4, atol=1e-7)


def test_maps_of_different_sizes_are_added_on_the_grid_of_the_largest() -> None:
    backbone = {"name": "test_resnet", "arguments": {"output_stride": 32}, "stages": [-2, -1]}
    settings = recipe("multihead", backbone=backbone, attention=False)
    method: Any = initial_method(settings, CLASSES, SAMPLES, seed=0).double().eval()
    fine, coarse = method.backbone(images()).maps
    assert fine.shape[2:] == (2, 2)
    assert coarse.shape[2:] == (1, 1)
    local, last = method.heads["local"][2].linear, method.heads["global"][2].linear
    local.weight.data.zero_()  # the fine map has no contribution
    reference = references(16)
    norm = torch.cat([local.bias.expand(3, -1), method.heads["global"](coarse)], 1).norm(dim=1)
    # The average plus the maximum of a map of one position is twice its feature.
    of_coarse = (2 * coarse.flatten(1) @ last.weight.T * reference[:, 8:]).sum(1) / norm
    weights = computed(method, reference)
    assert (weights.height, weights.width) == (2, 2)
    torch.testing.assert_close(weights.weights, (of_coarse / 4)[:, None].expand(-1, 4))


def test_an_embedding_of_the_class_token_has_no_contributions() -> None:
    assert contributions(built("irt"), images()) is None


def test_a_second_head_that_is_normalised_later_changes_nothing() -> None:
    class TwoHeads(Baseline):
        def forward(self, images: Tensor) -> Any:
            features = self.backbone(images)
            outputs = Outputs(unit(self.head(features).vector))
            unit(features.maps[-1].mean((2, 3)))
            return outputs

    plain = Baseline(recipe("baseline"), CLASSES, SAMPLES).double().eval()
    other = TwoHeads(recipe("baseline"), CLASSES, SAMPLES).double().eval()
    other.load_state_dict(plain.state_dict())
    assert torch.equal(computed(other).weights, computed(plain).weights)


def test_refuses_an_embedding_that_unit_did_not_normalise() -> None:
    class Divided(Baseline):
        def forward(self, images: Tensor) -> Any:
            vector = self.head(self.backbone(images)).vector
            return Outputs(vector / vector.norm(dim=1, keepdim=True))

    method = Divided(recipe("baseline"), CLASSES, SAMPLES).eval()
    with pytest.raises(NotNormalised, match="Divided returns an embedding that `unit` did not normalise"):
        contributions(method, images().float())


def test_leaves_the_method_unchanged() -> None:
    method = built("baseline")
    before = method.embed(images())
    computed(method)
    assert torch.equal(method.embed(images()), before)
    assert not method.backbone._forward_hooks


NAMES = {
    "baseline": [],
    "crt": ["projection"],
    "multihead": ["attention, global map", "attention, local map"],
    "gsp": ["transported mass"],
    "irt": ["class token"],
}


@pytest.mark.parametrize("name", METHODS)
def test_a_recipe_names_the_weights_of_its_method(name: str) -> None:
    method = built(name)
    weights = [each for function in position_functions(recipe(name)) for each in function(method, images())]
    assert [each.name for each in weights if not each.detail] == NAMES[name]
    for each in weights:
        assert each.weights.shape == (3, each.height * each.width)
        assert (each.weights >= 0).all()
