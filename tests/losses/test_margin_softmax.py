"""CosFace and ArcFace equal their definitions and pytorch-metric-learning."""

import math

import pytest
import torch
from pytorch_metric_learning.losses import ArcFaceLoss, CosFaceLoss
from torch.nn.functional import normalize

from tests.oracles.softmax_losses import margin_softmax
from unseen.losses.margin_softmax import ArcFace, CosFace, MarginSoftmax
from unseen.losses.settings import ArcFaceLoss as ArcFaceSettings
from unseen.losses.settings import CosFaceLoss as CosFaceSettings

LABELS = [0, 0, 3, 1, 3, 3, 1, 0]
KINDS: dict[str, type[MarginSoftmax]] = {"cosface": CosFace, "arcface": ArcFace}


def setting(kind: str, margin: float, scale: float = 8.0) -> tuple[torch.Tensor, torch.Tensor, MarginSoftmax]:
    torch.manual_seed(0)
    embeddings = normalize(torch.randn(len(LABELS), 6, dtype=torch.float64), dim=1)
    return embeddings, torch.tensor(LABELS), KINDS[kind](5, 6, scale, margin).double()


@pytest.mark.parametrize("margin", [0.0, 0.35, 0.5, 1.9])
@pytest.mark.parametrize("kind", KINDS)
def test_value_and_gradients_equal_the_definition(kind: str, margin: float) -> None:
    embeddings, labels, loss = setting(kind, margin)
    points, oracle_points = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
    proxies = loss.proxies.detach().clone().requires_grad_()
    value = loss(points, labels)
    expected = margin_softmax(oracle_points, LABELS, proxies, 8.0, margin, kind == "arcface")
    value.backward()
    expected.backward()
    torch.testing.assert_close(value, expected, rtol=1e-11, atol=1e-14)
    torch.testing.assert_close(points.grad, oracle_points.grad, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(loss.proxies.grad, proxies.grad, rtol=1e-9, atol=1e-12)
    targets = (embeddings * normalize(loss.proxies.detach(), dim=1)[labels]).sum(1)
    if margin == 1.9:
        assert 0 < int((targets.arccos() + margin > math.pi).sum()) < len(LABELS), "both sides occur"


@pytest.mark.parametrize(("kind", "peer"), [("cosface", CosFaceLoss), ("arcface", ArcFaceLoss)])
def test_equals_pytorch_metric_learning(kind: str, peer: type[torch.nn.Module]) -> None:
    embeddings, labels, loss = setting(kind, 0.5)
    degrees = math.degrees(0.5) if kind == "arcface" else 0.5
    reference = peer(5, 6, margin=degrees, scale=8.0).double()
    with torch.no_grad():
        reference.W.copy_(loss.proxies.T)
    torch.testing.assert_close(loss(embeddings, labels), reference(embeddings, labels), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_on_its_proxy_has_finite_gradients(kind: str) -> None:
    loss = KINDS[kind](3, 3, 64.0, 0.5)
    with torch.no_grad():
        loss.proxies.copy_(torch.eye(3))
    points = torch.eye(3).requires_grad_()
    loss(points, torch.arange(3)).backward()
    assert points.grad is not None
    assert bool(points.grad.isfinite().all())


def test_defaults_and_the_start_of_the_proxies_are_published() -> None:
    assert CosFaceSettings() == CosFaceSettings(scale=64.0, margin=0.35)
    assert ArcFaceSettings() == ArcFaceSettings(scale=64.0, margin=0.5)
    torch.manual_seed(0)
    for kind in KINDS.values():
        proxies = kind(200, 50, 64.0, 0.35).proxies.detach()
        assert float(proxies.std()) == pytest.approx(0.01, rel=0.02)
        assert abs(float(proxies.mean())) < 5e-4


@pytest.mark.parametrize(("scale", "margin"), [(0.0, 0.5), (64.0, -0.1), (64.0, 4.0)])
@pytest.mark.parametrize("kind", KINDS)
def test_refuses_constants_outside_of_their_range(kind: str, scale: float, margin: float) -> None:
    with pytest.raises(ValueError, match="expected a positive scale and a margin"):
        KINDS[kind](3, 3, scale, margin)
