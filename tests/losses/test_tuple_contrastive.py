"""The contrastive loss of tuples equals its definition for one and for several tuples, also at distance
zero."""

import math

import pytest
import torch
from torch.nn.functional import normalize

from tests.oracles import euclidean_losses as oracle
from unseen.losses.tuple_contrastive import TupleContrastive

TUPLES, NEGATIVES, DIM = 3, 5, 4


def tuples(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((TUPLES, DIM), (TUPLES, DIM), (TUPLES, NEGATIVES, DIM))
    query, positive, negatives = (
        normalize(torch.randn(*shape, dtype=torch.float64, generator=generator), dim=-1) for shape in shapes
    )
    return query, positive, negatives


def test_value_and_gradient_equal_the_definition() -> None:
    inputs, oracle_inputs = ([leaf.requires_grad_() for leaf in tuples()] for _ in range(2))
    value = TupleContrastive(0.85)(*inputs)
    expected = oracle.tuples(*oracle_inputs, margin=0.85, epsilon=1e-6)
    # a negative is inside the margin
    assert expected > oracle.tuples(*oracle_inputs[:2], oracle_inputs[2][:, :0], margin=0.85, epsilon=1e-6)
    value.backward()
    expected.backward()
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
    for tensor, oracle_tensor in zip(inputs, oracle_inputs, strict=True):
        torch.testing.assert_close(tensor.grad, oracle_tensor.grad, rtol=1e-10, atol=1e-13)


def test_gradcheck() -> None:
    assert torch.autograd.gradcheck(TupleContrastive(1.2), tuple(leaf.requires_grad_() for leaf in tuples(1)))


def test_a_batch_gives_the_sum_of_its_tuples_in_any_order() -> None:
    query, positive, negatives = tuples(2)
    loss = TupleContrastive(0.85)
    total = loss(query, positive, negatives)
    torch.testing.assert_close(
        sum(loss(q, p, n) for q, p, n in zip(query, positive, negatives, strict=True)), total
    )
    torch.testing.assert_close(loss(query.flip(0), positive.flip(0), negatives.flip(0).flip(1)), total)


def test_one_query_may_have_several_positives() -> None:
    query, positive, negatives = tuples(3)
    loss = TupleContrastive(0.85)
    torch.testing.assert_close(
        loss(query[0], positive, negatives), loss(query[:1].expand(TUPLES, DIM), positive, negatives)
    )


def test_rotation_changes_only_the_effect_of_epsilon() -> None:
    rotation = torch.linalg.qr(
        torch.randn(DIM, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ).Q
    loss = TupleContrastive(0.85, epsilon=0.0)
    torch.testing.assert_close(loss(*(vectors @ rotation for vectors in tuples(4))), loss(*tuples(4)))


def test_no_negatives() -> None:
    query, positive, negatives = tuples(5)
    torch.testing.assert_close(
        TupleContrastive(0.85, epsilon=0.0)(query, positive, negatives[:, :0]),
        (query - positive).square().sum() / 2,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_duplicates_and_half_precision(dtype: torch.dtype) -> None:
    query = tuples(6)[0].to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = TupleContrastive(0.85)(query, query.detach(), query.detach()[:, None])
    value.backward()
    distance = 1e-6 * math.sqrt(DIM)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(TUPLES * ((0.85 - distance) ** 2 + distance**2) / 2)
    assert query.grad is not None
    assert query.grad.dtype == dtype
    assert query.grad.isfinite().all()
