"""Proxy-Anchor equals its definition and pytorch-metric-learning, also for classes without samples."""

import itertools

import pytest
import torch
from pytorch_metric_learning.losses import ProxyAnchorLoss
from torch.nn.functional import normalize

from tests.device import pretended
from tests.oracles import losses as oracle
from unseen.losses import proxy_anchor as module
from unseen.losses.proxy_anchor import ProxyAnchor


def setting(
    labels: list[int], classes: int = 5, alpha: float = 32.0, margin: float = 0.1
) -> tuple[torch.Tensor, torch.Tensor, ProxyAnchor]:
    torch.manual_seed(0)
    embeddings = normalize(torch.randn(len(labels), 6, dtype=torch.float64), dim=1)
    return embeddings, torch.tensor(labels), ProxyAnchor(classes, 6, alpha, margin).double()


ALPHA_AND_MARGIN = ((32.0, 0.1), (4.0, 0.0), (700.0, 0.4))
LABELS = ([0, 0, 3, 1, 3, 3, 1, 0], [2, 2, 2, 2], [4], [0, 0, 0, 0, 1, 2, 3, 4])


def assert_equals_the_definition(
    labels: list[int], alpha: float, margin: float, device: torch.device
) -> pretended.Record:
    embeddings, targets, loss = setting(labels, alpha=alpha, margin=margin)
    points = embeddings.clone().to(device).requires_grad_()
    oracle_points = embeddings.clone().requires_grad_()
    proxies = loss.proxies.detach().clone().requires_grad_()
    loss, targets = loss.to(device), targets.to(device)
    with pretended.recorded() as record:
        value = loss(points, targets)
        value.backward()
    expected = oracle.proxy_anchor(oracle_points, labels, proxies, alpha=alpha, margin=margin)
    expected.backward()
    assert points.grad is not None
    assert loss.proxies.grad is not None
    torch.testing.assert_close(value.cpu(), expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(points.grad.cpu(), oracle_points.grad, rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(loss.proxies.grad.cpu(), proxies.grad, rtol=1e-10, atol=1e-13)
    return record


@pytest.mark.parametrize("elements", [1 << 18, 20])
@pytest.mark.parametrize(("alpha", "margin"), ALPHA_AND_MARGIN)
@pytest.mark.parametrize("labels", LABELS)
def test_value_and_gradients_equal_the_definition(
    labels: list[int], alpha: float, margin: float, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CPU_ELEMENTS", elements)  # 20: blocks of a few proxies
    assert_equals_the_definition(labels, alpha, margin, pretended.CPU)


def _on_gpu() -> None:
    for (alpha, margin), labels in itertools.product(ALPHA_AND_MARGIN, LABELS):
        record = assert_equals_the_definition(labels, alpha, margin, pretended.GPU)
        assert record.waits == []
        assert record.launches


def test_value_and_gradients_of_a_gpu_equal_the_definition_without_a_wait() -> None:
    pretended.run(_on_gpu)


def test_the_negative_part_is_divided_by_all_proxies() -> None:
    """Proxies of absent classes count in the divisor: orthogonal to all samples, each adds log(1 + B
    exp(alpha delta)) / C."""
    embeddings = torch.eye(3, dtype=torch.float64)[:2]
    loss = ProxyAnchor(4, 3, 2.0, 0.25).double()
    with torch.no_grad():
        loss.proxies.copy_(torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 5]]))
    term = torch.tensor([2 * 0.25], dtype=torch.float64).exp()
    positive = torch.log1p(torch.tensor(-2 * 0.75, dtype=torch.float64).exp())
    expected = positive + (2 * torch.log1p(term) + 2 * torch.log1p(2 * term)).squeeze() / 4
    torch.testing.assert_close(loss(embeddings, torch.tensor([0, 1])), expected)


@pytest.mark.parametrize("classes", [20, 3000])
def test_pytorch_metric_learning_agrees(classes: int) -> None:
    torch.manual_seed(1)
    points, labels = torch.randn(180, 32), torch.randint(0, classes, (36,)).repeat_interleave(5)
    loss, peer = ProxyAnchor(classes, 32, 32.0, 0.1), ProxyAnchorLoss(classes, 32, margin=0.1, alpha=32)
    with torch.no_grad():
        peer.proxies.copy_(loss.proxies)
    own_points, pml_points = points.clone().requires_grad_(), points.clone().requires_grad_()
    value, expected = loss(normalize(own_points, dim=1), labels), peer(pml_points, labels)
    value.backward()
    expected.backward()
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(own_points.grad, pml_points.grad, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(loss.proxies.grad, peer.proxies.grad, rtol=1e-4, atol=1e-6)


def test_steep_slopes_do_not_overflow_single_precision() -> None:
    embeddings, labels, loss = setting([0, 0, 3, 1], alpha=700.0, margin=0.4)
    expected = loss(embeddings, labels)
    torch.testing.assert_close(loss.float()(embeddings.float(), labels).double(), expected, rtol=1e-5, atol=0)


def test_refuses_a_label_without_proxy() -> None:
    embeddings, _, loss = setting([0, 1])
    with pytest.raises(IndexError):
        loss(embeddings, torch.tensor([0, 5]))
