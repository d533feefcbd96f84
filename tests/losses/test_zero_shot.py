"""The zero-shot prediction loss equals two explicit ridge regressions."""

import math

import pytest
import torch

from tests.oracles import losses as oracle
from unseen.losses.zero_shot import ZeroShot, halves

LAYOUTS = {
    "class-major": [3, 3, 0, 0, 5, 5, 1, 1],
    "sample-major": [3, 0, 5, 1, 3, 0, 5, 1],
    "three classes": [2, 2, 2, 0, 0, 4],
    "two images": [4, 1],
}


def loss_of(classes: int = 6, attributes: int = 4) -> ZeroShot:
    torch.manual_seed(0)
    return ZeroShot(classes, attributes, ridge=0.05, scale=9.5, dim=3).double()


def attributes_of(count: int, attributes: int = 4) -> torch.Tensor:
    return torch.randn(
        count, attributes, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    ).softmax(1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_value_and_gradients_equal_the_definition(layout: str) -> None:
    labels, loss = LAYOUTS[layout], loss_of()
    attributes, oracle_attributes = (attributes_of(len(labels)).requires_grad_() for _ in range(2))
    embeddings = loss.class_embeddings.detach().clone().requires_grad_()
    value = loss(attributes, torch.tensor(labels))
    expected = oracle.zero_shot(oracle_attributes, labels, embeddings, ridge=0.05, scale=9.5)
    value.backward()
    expected.backward()
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(attributes.grad, oracle_attributes.grad, rtol=1e-9, atol=1e-13)
    torch.testing.assert_close(loss.class_embeddings.grad, embeddings.grad, rtol=1e-9, atol=1e-13)


def test_gradcheck() -> None:
    loss, labels = loss_of(), torch.tensor(LAYOUTS["class-major"])

    def value(z: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(loss, {"class_embeddings": v}, (z, labels))

    assert torch.autograd.gradcheck(
        value, (attributes_of(8).requires_grad_(), loss.class_embeddings.detach().requires_grad_())
    )


def test_halves_have_disjoint_classes_in_any_layout() -> None:
    for labels in LAYOUTS.values():
        first, enough = halves(torch.tensor(labels))
        inside = {y for y, in_first in zip(labels, first.tolist(), strict=True) if in_first}
        outside = {y for y, in_first in zip(labels, first.tolist(), strict=True) if not in_first}
        assert enough
        assert not inside & outside
        assert len(inside) == len(set(labels)) // 2
        assert inside == set(list(dict.fromkeys(labels))[: len(inside)])


def test_one_class_gives_no_loss() -> None:
    loss, attributes = loss_of(), attributes_of(4).requires_grad_()
    value = loss(attributes, torch.full((4,), 2))
    value.backward()
    assert value == 0
    assert attributes.grad is not None
    assert not attributes.grad.any()
    assert loss.class_embeddings.grad is not None
    assert not loss.class_embeddings.grad.any()


def test_does_not_depend_on_order_within_classes_and_rotation_of_attributes() -> None:
    loss, attributes, labels = loss_of(), attributes_of(8), torch.tensor(LAYOUTS["class-major"])
    value = loss(attributes, labels)
    swapped = [1, 0, 3, 2, 5, 4, 7, 6]
    rotation = torch.linalg.qr(
        torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    ).Q
    torch.testing.assert_close(loss(attributes[swapped], labels), value)
    torch.testing.assert_close(loss(attributes @ rotation, labels), value)


def test_equal_attributes_give_the_definition_and_a_finite_gradient() -> None:
    loss, labels = loss_of().float(), torch.tensor(LAYOUTS["class-major"])
    attributes = torch.full((8, 4), 0.25, requires_grad=True)  # a Gram matrix of rank one
    value = loss(attributes, labels)
    value.backward()
    expected = oracle.zero_shot(
        attributes.detach().double(),
        labels.tolist(),
        loss.class_embeddings.detach().double(),
        ridge=0.05,
        scale=9.5,
    )
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=0)
    assert attributes.grad is not None
    assert attributes.grad.isfinite().all()


def test_class_embeddings_start_as_in_the_released_code() -> None:
    torch.manual_seed(3)
    class_embeddings = ZeroShot(200, 64, 0.05, 9.5, 128, "he_normal").class_embeddings.detach()
    assert float(class_embeddings.std()) == pytest.approx((2 / 200) ** 0.5, rel=0.02)
    assert float(class_embeddings.abs().max()) <= 2 * (2 / 200) ** 0.5 / 0.8796


@pytest.mark.parametrize("classes", [8, 40, 100, 11_318])
@pytest.mark.parametrize("batch", [(8, 4), (32, 1), (2, 16)], ids=str)
@pytest.mark.parametrize("spread", [0.0, 0.1, 1.0, 100.0])
def test_the_loss_starts_at_chance_for_any_number_of_classes(
    classes: int, batch: tuple[int, int], spread: float
) -> None:
    """For attributes from all equal to one prototype per image."""
    torch.manual_seed(0)
    loss = ZeroShot(classes, 64, 0.05, 9.5, 128)
    attributes = (spread * torch.randn(batch[0] * batch[1], 64)).softmax(1)
    labels = (torch.arange(batch[0]) % classes).repeat_interleave(batch[1])
    assert float(loss(attributes, labels).detach()) <= math.log(classes) + 0.5


def test_the_released_initialization_starts_above_chance() -> None:
    torch.manual_seed(0)
    loss, labels = ZeroShot(8, 64, 0.05, 9.5, 128, "he_normal"), torch.arange(8).repeat_interleave(4)
    assert float(loss(torch.full((32, 64), 1 / 64), labels).detach()) > 50


def test_attributes_of_zero_give_chance_without_gradient() -> None:
    loss, attributes = loss_of(), torch.zeros(8, 4, dtype=torch.float64)
    value = loss(attributes, torch.tensor(LAYOUTS["class-major"]))
    value.backward()
    assert float(value.detach()) == pytest.approx(math.log(6))
    assert loss.class_embeddings.grad is not None
    assert not loss.class_embeddings.grad.any()


def test_nan_is_passed_to_the_loss() -> None:
    attributes = attributes_of(8)
    attributes[2, 1] = torch.nan
    assert loss_of()(attributes, torch.tensor(LAYOUTS["class-major"])).isnan()


def test_half_precision_and_autocast_compute_in_single() -> None:
    loss, labels = loss_of().float(), torch.tensor(LAYOUTS["class-major"])
    half_precision = attributes_of(8).bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(half_precision, labels)
    value.backward()
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, loss(half_precision.detach().float(), labels))


def test_refuses_another_number_of_attributes() -> None:
    with pytest.raises(ValueError, match="expected 4 attributes, got 5"):
        loss_of()(attributes_of(4, 5), torch.tensor([0, 0, 1, 1]))
