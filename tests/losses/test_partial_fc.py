"""Partial FC equals the full softmax with all classes, and the softmax over its sample otherwise."""

import pytest
import torch
from torch.nn.functional import normalize

from tests.oracles.softmax_losses import margin_softmax
from unseen.losses.margin_softmax import ArcFace, CosFace
from unseen.losses.partial_fc import PartialFc
from unseen.losses.settings import PartialFcLoss
from unseen.methods import modules

LABELS = [0, 0, 3, 11, 3, 3, 11, 0]
CLASSES = 12


def setting(function: str, share: float) -> tuple[torch.Tensor, torch.Tensor, PartialFc]:
    torch.manual_seed(0)
    embeddings = normalize(torch.randn(len(LABELS), 6, dtype=torch.float64), dim=1)
    return embeddings, torch.tensor(LABELS), PartialFc(CLASSES, 6, function, 8.0, 0.4, share).double()


@pytest.mark.parametrize(("function", "full"), [("cosface", CosFace), ("arcface", ArcFace)])
def test_all_classes_give_the_bytes_of_the_full_softmax(function: str, full: type[torch.nn.Module]) -> None:
    embeddings, labels, loss = setting(function, 1.0)
    reference = full(CLASSES, 6, 8.0, 0.4).double()
    reference.load_state_dict({"proxies": loss.full.proxies.detach().clone()})
    points, others = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
    value, expected = loss(points, labels), reference(others, labels)
    value.backward()
    expected.backward()
    assert torch.equal(value, expected)
    assert torch.equal(points.grad, others.grad)
    assert torch.equal(loss.full.proxies.grad, reference.proxies.grad)


@pytest.mark.parametrize("function", ["cosface", "arcface"])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.99])
def test_equals_the_definition_over_its_sample(function: str, share: float) -> None:
    embeddings, labels, loss = setting(function, share)
    torch.manual_seed(7)
    chosen = loss.sample(labels)
    assert chosen.tolist() == sorted(set(chosen.tolist()))
    assert set(LABELS) <= set(chosen.tolist())
    assert len(chosen) == max(len(LABELS), int(share * CLASSES))
    proxies = loss.full.proxies.detach().clone().requires_grad_()
    points, others = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
    positions = [chosen.tolist().index(label) for label in LABELS]
    expected = margin_softmax(others, positions, proxies[chosen], 8.0, 0.4, function == "arcface")
    torch.manual_seed(7)
    value = loss(points, labels)
    value.backward()
    expected.backward()
    torch.testing.assert_close(value, expected, rtol=1e-11, atol=1e-14)
    torch.testing.assert_close(points.grad, others.grad, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(loss.full.proxies.grad, proxies.grad, rtol=1e-9, atol=1e-12)
    omitted = sorted(set(range(CLASSES)) - set(chosen.tolist()))
    assert not loss.full.proxies.grad[omitted].any()


def test_other_classes_are_drawn_uniformly() -> None:
    _, labels, loss = setting("cosface", 0.5)
    counts = torch.zeros(CLASSES)
    for _ in range(2000):
        counts[loss.sample(labels)] += 1
    others = [label for label in range(CLASSES) if label not in LABELS]
    drawn = max(len(LABELS), CLASSES // 2) - 3
    assert counts[[0, 3, 11]].tolist() == [2000] * 3
    torch.testing.assert_close(counts[others] / 2000, torch.full((9,), drawn / 9), atol=0.05, rtol=0)


@pytest.mark.parametrize("share", [0.0, -0.1, 1.5])
def test_refuses_a_share_outside_of_its_range(share: float) -> None:
    with pytest.raises(ValueError, match="share of the classes"):
        PartialFc(5, 4, "cosface", 8.0, 0.4, share)


def test_a_recipe_builds_it() -> None:
    loss = modules.loss(PartialFcLoss(share=0.3), classes=20, dim=4)
    assert isinstance(loss, PartialFc)
    assert (loss.share, loss.full.margin, len(list(loss.parameters()))) == (0.3, 0.4, 1)
