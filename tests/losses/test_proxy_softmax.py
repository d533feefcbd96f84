"""ProxyNCA++ and the normalised softmax equal their definitions and pytorch-metric-learning."""

import math

import pytest
import torch
from pytorch_metric_learning.losses import NormalizedSoftmaxLoss, ProxyNCALoss
from torch.nn.functional import normalize

from tests.oracles import softmax_losses as oracle
from unseen.losses import proxy_softmax as module
from unseen.losses.normalized_softmax import NormalizedSoftmax
from unseen.losses.proxy_nca import INITIALIZATIONS, ProxyNca
from unseen.losses.proxy_softmax import ProxySoftmax

BATCHES = {
    "several classes": [0, 0, 3, 1, 3, 3, 1, 0],
    "one class": [2, 2, 2, 2],
    "one image": [4],
    "half of the batch of one class": [0, 0, 0, 0, 1, 2, 3, 4],
}


def setting(labels: list[int], loss: ProxySoftmax) -> tuple[torch.Tensor, torch.Tensor, ProxySoftmax]:
    embeddings = normalize(
        torch.randn(len(labels), 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), dim=1
    )
    return embeddings, torch.tensor(labels), loss.double()


@pytest.mark.parametrize("elements", [1 << 20, 12, 1])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("temperature", [0.05, 0.11, 1 / 700])
def test_value_and_gradients_equal_the_definition(
    batch: str, temperature: float, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CPU_ELEMENTS", elements)  # 12: two samples at a time
    torch.manual_seed(0)
    embeddings, labels, loss = setting(BATCHES[batch], NormalizedSoftmax(5, 6, temperature))
    points, oracle_points = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
    proxies = loss.proxies.detach().clone().requires_grad_()
    value = loss(points, labels)
    expected = oracle.normalized_softmax(oracle_points, labels.tolist(), proxies, temperature=temperature)
    value.backward()
    expected.backward()
    torch.testing.assert_close(value, expected, rtol=1e-11, atol=1e-14)
    torch.testing.assert_close(points.grad, oracle_points.grad, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(loss.proxies.grad, proxies.grad, rtol=1e-9, atol=1e-12)


def test_scale_18_equals_squared_distances_of_vectors_of_length_3() -> None:
    torch.manual_seed(0)
    embeddings, labels, loss = setting(BATCHES["several classes"], ProxyNca(5, 6, 18.0, "normal_over_8"))
    torch.testing.assert_close(
        loss(embeddings, labels), oracle.proxy_nca(embeddings, labels.tolist(), loss.proxies.detach())
    )


@pytest.mark.parametrize("classes", [20, 3000])
@pytest.mark.parametrize("peer", ["NormalizedSoftmaxLoss", "ProxyNCALoss"])
def test_pytorch_metric_learning_agrees(classes: int, peer: str) -> None:
    """Its ProxyNCALoss includes the positive proxy in the sum, as ProxyNCA++ does. softmax_scale 9 on squared
    distances equals 18 on cosines."""
    torch.manual_seed(1)
    points, labels = torch.randn(60, 32), torch.randint(0, classes, (12,)).repeat_interleave(5)
    own_points, pml_points = points.clone().requires_grad_(), points.clone().requires_grad_()
    if peer == "ProxyNCALoss":
        loss: ProxySoftmax = ProxyNca(classes, 32, 18.0, "normal_over_8")
        pml_loss = ProxyNCALoss(classes, 32, softmax_scale=9)
        pml_loss.proxies.data = loss.proxies.detach().clone()
    else:
        loss, pml_loss = (
            NormalizedSoftmax(classes, 32, 0.05),
            NormalizedSoftmaxLoss(classes, 32, temperature=0.05),
        )
        pml_loss.W.data = loss.proxies.detach().T.clone()
    value, expected = loss(normalize(own_points, dim=1), labels), pml_loss(pml_points, labels)
    value.backward()
    expected.backward()
    gradient = pml_loss.proxies.grad if peer == "ProxyNCALoss" else pml_loss.W.grad.T
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(own_points.grad, pml_points.grad, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(loss.proxies.grad, gradient, rtol=1e-4, atol=1e-6)


def test_a_perfect_sample_has_a_small_positive_loss() -> None:
    """exp(-20) for each of two orthogonal proxies: single precision must not lose it."""
    loss = NormalizedSoftmax(3, 3, 0.05)
    with torch.no_grad():
        loss.proxies.copy_(torch.eye(3) * 0.3)
    value = loss(torch.eye(3)[:1], torch.tensor([0]))
    assert value >= 0
    assert value.item() == pytest.approx(math.log1p(2 * math.exp(-20)), abs=2e-7)
    value.backward()
    assert loss.proxies.grad is not None
    assert loss.proxies.grad.abs().max() < 1e-4


def test_proxies_start_as_in_the_released_code() -> None:
    torch.manual_seed(0)
    released, gsp, uniform = (
        ProxyNca(500, 64, 18.0, "normal_over_8"),
        ProxyNca(500, 64, 9.09, "he_normal"),
        NormalizedSoftmax(500, 64, 0.05),
    )
    assert released.proxies.std().item() == pytest.approx(1 / 8, rel=0.02)
    assert gsp.proxies.std().item() == pytest.approx((2 / 500) ** 0.5, rel=0.02)
    assert uniform.proxies.abs().max().item() == pytest.approx(1 / 8, rel=0.01)
    assert uniform.proxies.abs().max() <= 1 / 8


def test_refuses_invalid_settings() -> None:
    with pytest.raises(ValueError, match=", ".join(INITIALIZATIONS)):
        ProxyNca(5, 6, 18.0, "zeros")
    with pytest.raises(ValueError, match="temperature"):
        NormalizedSoftmax(5, 6, 0.0)
    embeddings, _, loss = setting([0, 1], NormalizedSoftmax(5, 6, 0.05))
    with pytest.raises(RuntimeError, match="out of bounds"):
        loss(embeddings, torch.tensor([0, 5]))
