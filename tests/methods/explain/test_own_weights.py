"""The weights that methods define: projection, attention of positions, transported mass, class token."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.methods.small import CLASSES, SAMPLES, batch, recipe
from tests.oracles import poolings as oracle
from unseen.methods.build import initial_method
from unseen.methods.explain import class_token, crt, multihead, transport
from unseen.networks.attention import SecondOrderAttention
from unseen.poolings.gsp import Gsp

WIDE = {"name": "test_resnet", "arguments": {"output_stride": 8}}  # maps of 4 x 4


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def built(name: str, **blocks: Any) -> Any:
    return initial_method(recipe(name, **blocks), CLASSES, SAMPLES, seed=0).double().eval()


IMAGES = batch(dtype=torch.float64)[0][:3]


class TestProjection:
    def test_is_the_softplus_of_the_dot_products(self) -> None:
        features, prototypes = normal(2, 5, 2, 3), normal(4, 5, seed=1)
        weights = crt.projection(features, prototypes)
        assert weights.shape == (2, 4, 6)
        for image in range(2):
            for k in range(4):
                for position in range(6):
                    x = features[image, :, position // 3, position % 3]
                    dot = sum(float(a) * float(b) for a, b in zip(x, prototypes[k], strict=True))
                    assert weights[image, k, position].item() == pytest.approx(math.log1p(math.exp(dot)))

    def test_the_combined_weight_is_the_sum_over_the_prototypes_of_the_test_branch(self) -> None:
        method = built("crt", backbone=WIDE)
        combined, *of_prototypes = crt.position_weights(method, IMAGES)
        each = crt.projection(method.backbone(IMAGES).maps[-1], method.branches.prototypes[0])
        torch.testing.assert_close(combined.weights, each.sum(1))
        assert [weights.detail for weights in of_prototypes] == [True] * 4
        spreads = each.std(2, correction=0).mean(0).tolist()
        order = sorted(range(4), key=lambda k: -spreads[k])
        assert [weights.name for weights in of_prototypes] == [f"prototype {k + 1}" for k in order]
        for k, weights in zip(order, of_prototypes, strict=True):
            torch.testing.assert_close(weights.weights, each[:, k])

    def test_the_control_without_prototypes_has_no_projection(self) -> None:
        assert crt.position_weights(built("crt", transform="average"), IMAGES) == []


class TestAttention:
    def test_is_the_attention_that_the_block_applies(self) -> None:
        torch.manual_seed(0)
        block = SecondOrderAttention(6, 2, 0.7).double().eval()
        for parameter in block.parameters():
            torch.nn.init.normal_(parameter)
        features = normal(2, 6, 3, 2)
        weights = multihead.attention(block, features)
        torch.testing.assert_close(weights.sum(2), torch.ones(2, 6, dtype=torch.float64))
        values = block.h(features).flatten(2)
        for image in range(2):
            for i in range(6):
                attended = sum(weights[image, i, j] * values[image, :, j] for j in range(6))
                output = block.v(attended.view(1, -1, 1, 1)).flatten() + features[image, :, i // 2, i % 2]
                torch.testing.assert_close(block(features)[image, :, i // 2, i % 2], output)

    def test_the_attention_of_a_point_is_the_row_of_its_position(self) -> None:
        maps = torch.arange(2 * 36, dtype=torch.float64).view(2, 6, 6)  # 2 rows of 3 positions
        point = torch.tensor([[0.5, 0.9], [1.0, 0.0]])
        rows = multihead.of_point(maps, 2, 3, point)
        assert torch.equal(rows, torch.stack([maps[0, 4], maps[1, 2]]))

    def test_both_maps_show_the_attention_that_positions_receive_and_that_of_four_points(self) -> None:
        method = built("multihead", backbone={**WIDE, "stages": [-2, -1]})
        weights = {each.name: each for each in multihead.position_weights(method, IMAGES)}
        local, last = method.backbone(IMAGES).maps
        for name, features in (("local", local), ("global", last)):
            expected = multihead.attention(method.heads[name][0], features)
            received = weights[f"attention, {name} map"]
            torch.testing.assert_close(received.weights, expected.mean(1))
            values = weights["attention, global map"].weights
            ordered = [sorted(range(16), key=lambda i, row=row: -row[i]) for row in values.tolist()]
            for number, rank in enumerate((0, 15, 5, 10), 1):
                of_point = weights[f"attention of point {number}, {name} map"]
                chosen = [order[rank] for order in ordered]
                assert of_point.point is not None
                assert of_point.point.tolist() == [[(c % 4 + 0.5) / 4, (c // 4 + 0.5) / 4] for c in chosen]
                for image in range(3):
                    torch.testing.assert_close(of_point.weights[image], expected[image, chosen[image]])

    def test_heads_without_attention_have_none(self) -> None:
        assert multihead.position_weights(built("multihead", attention=False), IMAGES) == []


class TestTransport:
    @pytest.mark.parametrize("epsilon", [0.5, 5.0])
    def test_mass_and_dominant_prototype_are_those_of_the_plan(self, epsilon: float) -> None:
        pooling = Gsp(5, prototypes=3, transport_ratio=0.3, epsilon=epsilon, initialization_memory=6).double()
        pooling.initialized.fill_(True)
        pooling.prototypes.data.copy_(0.5 * normal(3, 5, seed=1))
        features = 0.5 * normal(2, 5, 2, 4)
        mass, prototype = transport.transported(pooling, features)
        assert prototype is not None
        for image in range(2):
            rows = features[image].flatten(1).T
            plan, rest = oracle.root(oracle.costs(rows, pooling.prototypes.data).numpy(), 0.3, epsilon)
            np.testing.assert_allclose(mass[image].detach(), (1 / 8 - rest) / 0.3, atol=1e-12)
            np.testing.assert_allclose(mass[image].detach(), plan.sum(0) / 0.3, atol=1e-9)
            assert prototype[image].tolist() == plan.argmax(0).tolist()

    def test_before_the_prototypes_are_selected_all_positions_have_equal_mass(self) -> None:
        pooling = Gsp(5, prototypes=3, initialization_memory=6).double()
        mass, prototype = transport.transported(pooling, normal(2, 5, 2, 4))
        torch.testing.assert_close(mass, torch.full((2, 8), 1 / 8, dtype=torch.float64))
        assert prototype is None

    def test_the_mass_is_that_of_the_projected_features(self) -> None:
        method = built("gsp", backbone=WIDE)
        pooling = method.head.pooling
        pooling.gsp.initialized.fill_(True)
        (weights,) = transport.position_weights(method, IMAGES)
        projected = pooling.transform(method.backbone(IMAGES).maps[-1]).flatten(2)
        vector = (weights.weights[:, None] * projected).sum(2)
        torch.testing.assert_close(vector, method.head(method.backbone(IMAGES)).vector)


class TestClassToken:
    def test_is_the_attention_of_token_0_in_the_last_block(self) -> None:
        method = built("irt")
        attention: Any = method.backbone.network.blocks[-1].attn
        tokens: list[Tensor] = []
        hook = attention.register_forward_hook(lambda _, inputs, output: tokens.extend([inputs[0], output]))
        (weights,) = class_token.position_weights(method, IMAGES)
        hook.remove()
        x, output = tokens
        heads, size = attention.num_heads, attention.qkv.out_features // 3 // attention.num_heads
        for image in range(3):
            qkv = attention.qkv(x[image])
            total, attended = torch.zeros(17, dtype=torch.float64), []
            for head in range(heads):
                part = slice(head * size, (head + 1) * size)
                q, k, v = (qkv[:, i * heads * size :][:, part] for i in range(3))
                row = torch.stack([torch.exp(q[0] @ k[j] / math.sqrt(size)) for j in range(17)])
                total += row / row.sum() / heads
                attended.append((row / row.sum()) @ v)
            torch.testing.assert_close(attention.proj(torch.cat(attended)), output[image, 0])
            torch.testing.assert_close(weights.weights[image], total[1:] / total[1:].sum())
        assert (weights.height, weights.width) == (4, 4)

    def test_a_network_without_such_a_block_has_no_weights(self) -> None:
        assert class_token.position_weights(built("baseline"), IMAGES) == []
