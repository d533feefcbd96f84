"""The contrastive loss of a query's tuple against its definition, one tuple, several, and at distance
zero."""

import math

import pytest
import torch
from torch.nn.functional import normalize

from pipeline.losses.tuple_contrastive import TupleContrastive
from tests.oracles import euclidean_losses as oracle

TUPLES, NEGATIVES, DIM = 3, 5, 4


def tuples(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((TUPLES, DIM), (TUPLES, DIM), (TUPLES, NEGATIVES, DIM))
    query, positive, negatives = (
        normalize(torch.randn(*shape, dtype=torch.float64, generator=generator), dim=-1) for shape in shapes
    )
    return query, positive, negatives


def test_value_and_gradient_are_those_of_the_definition() -> None:
    ours, theirs = ([each.requires_grad_() for each in tuples()] for _ in range(2))
    value = TupleContrastive(0.85)(*ours)
    expected = oracle.tuples(*theirs, margin=0.85, epsilon=1e-6)
    assert expected > oracle.tuples(
        *theirs[:2], theirs[2][:, :0], margin=0.85, epsilon=1e-6
    )  # some negative is inside the margin
    value.backward()
    expected.backward()
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-10, atol=1e-13)


def test_gradcheck() -> None:
    assert torch.autograd.gradcheck(TupleContrastive(1.2), tuple(each.requires_grad_() for each in tuples(1)))


def test_a_batch_is_the_sum_of_its_tuples_in_any_order() -> None:
    query, positive, negatives = tuples(2)
    loss = TupleContrastive(0.85)
    total = loss(query, positive, negatives)
    torch.testing.assert_close(
        sum(loss(q, p, n) for q, p, n in zip(query, positive, negatives, strict=True)), total
    )
    torch.testing.assert_close(loss(query.flip(0), positive.flip(0), negatives.flip(0).flip(1)), total)


def test_one_query_may_serve_several_positives() -> None:
    query, positive, negatives = tuples(3)
    loss = TupleContrastive(0.85)
    torch.testing.assert_close(
        loss(query[0], positive, negatives), loss(query[:1].expand(TUPLES, DIM), positive, negatives)
    )


def test_rotation_changes_nothing_but_epsilon() -> None:
    rotation = torch.linalg.qr(
        torch.randn(DIM, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ).Q
    loss = TupleContrastive(0.85, epsilon=0.0)
    torch.testing.assert_close(loss(*(each @ rotation for each in tuples(4))), loss(*tuples(4)))


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
    apart = 1e-6 * math.sqrt(DIM)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(TUPLES * ((0.85 - apart) ** 2 + apart**2) / 2)
    assert query.grad is not None
    assert query.grad.dtype == dtype
    assert query.grad.isfinite().all()
