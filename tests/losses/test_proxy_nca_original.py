"""The first ProxyNCA equals its definition; an image with probability p costs log((1 - p) / p)."""

import pytest
import torch
from pytorch_metric_learning.losses import ProxyNCALoss
from torch.nn.functional import normalize

from unseen.losses.proxy_nca_original import OriginalProxyNca


@pytest.mark.parametrize("label", [0, 2])
def test_value_equals_the_definition_and_pytorch_metric_learning(label: int) -> None:
    """PML's ProxyNCALoss includes the own proxy: its value is -log p."""
    torch.manual_seed(0)
    loss, peer = OriginalProxyNca(4, 5, 2.0).double(), ProxyNCALoss(4, 5, softmax_scale=1).double()
    peer.proxies.data = loss.proxies.detach().clone()
    z = normalize(torch.randn(1, 5, dtype=torch.float64), dim=1)
    value = loss(z, torch.tensor([label])).detach()
    squared = (z - normalize(loss.proxies.detach(), dim=1)).square().sum(1)
    others = torch.cat([squared[:label], squared[label + 1 :]])
    torch.testing.assert_close(value, -torch.log(torch.exp(-squared[label]) / torch.exp(-others).sum()))
    p = torch.exp(-peer(z, torch.tensor([label]))).detach()
    torch.testing.assert_close(value, torch.log((1 - p) / p))


def test_the_value_is_negative_at_the_own_proxy_of_two_classes() -> None:
    loss = OriginalProxyNca(2, 2, 2.0)
    loss.proxies.data = torch.tensor([[3.0, 0], [-3, 0]])
    assert float(loss(torch.tensor([[1.0, 0]]), torch.tensor([0]))) == pytest.approx(-4)


def test_refuses_a_single_class() -> None:
    with pytest.raises(ValueError, match="expected 2 classes"):
        OriginalProxyNca(1, 5, 2.0)
