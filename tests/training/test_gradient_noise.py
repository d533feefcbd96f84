"""Gradient noise equals the covariance matrix and, for a real loss, finite differences; also for few
gradients."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.oracles import gradient_noise as oracle
from unseen.runtime.errors import UserError
from unseen.training.gradient_noise import NAMES, covariance_norm, direction_covariance_norm, gradient_noise

LABELS = [0, 0, 1, 1, 2, 2, 2]


def random_rows(count: int, dim: int, seed: int = 0) -> Tensor:
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def contrastive(z: Tensor, margin: float) -> Tensor:
    labels = torch.tensor(LABELS)
    similarity, same_class = z @ z.T, labels[:, None] == labels
    positive = (1 - similarity)[same_class & ~torch.eye(len(z), dtype=torch.bool)].sum()
    return (positive + (similarity - margin).clamp(min=0)[~same_class].sum()) / len(z)


@pytest.mark.parametrize(("count", "dim"), [(7, 3), (3, 9), (2, 1), (40, 5)])
def test_trace_equals_the_nuclear_norm_of_the_covariance(count: int, dim: int) -> None:
    rows = random_rows(count, dim) * 0.01 + 3
    matrix = oracle.covariance(rows.tolist())
    assert covariance_norm(rows).item() == pytest.approx(oracle.nuclear_norm(matrix), rel=1e-11)
    assert np.trace(matrix) == pytest.approx(oracle.nuclear_norm(matrix), rel=1e-11)
    assert covariance_norm(rows).item() == pytest.approx(
        float(np.cov(rows.numpy().T, ddof=1).trace()) if dim > 1 else matrix.item(), rel=1e-11
    )


def test_directions_exclude_rows_without_gradient() -> None:
    rows = random_rows(9, 4) * torch.logspace(-8, 8, 9, dtype=torch.float64)[:, None]
    rows[[2, 5]] = 0
    expected = oracle.nuclear_norm(oracle.covariance(oracle.directions(rows.tolist())))
    assert direction_covariance_norm(rows).item() == pytest.approx(expected, rel=1e-12)
    assert direction_covariance_norm(1e5 * rows).item() == pytest.approx(expected, rel=1e-12), (
        "the scale of the loss has no effect"
    )


def test_known_values() -> None:
    opposite = torch.tensor([[3.0, 0], [-0.5, 0]])
    assert direction_covariance_norm(opposite).item() == 2.0  # B / (B - 1), the maximum
    assert direction_covariance_norm(torch.tensor([[3.0, 0], [0.5, 0]])).item() == 0.0
    assert covariance_norm(opposite).item() == pytest.approx(3.5**2 / 2)


@pytest.mark.parametrize("rows", [torch.zeros(5, 3), torch.zeros(0, 3), torch.ones(1, 3), torch.ones(4, 3)])
def test_equal_gradients_have_no_noise(rows: Tensor) -> None:
    assert covariance_norm(rows).item() == 0
    assert direction_covariance_norm(rows).item() == pytest.approx(0, abs=1e-30)


@pytest.mark.parametrize("margin", [-0.5, 0.0, 0.5])
def test_noise_of_a_contrastive_term(margin: float) -> None:
    z = functional.normalize(random_rows(len(LABELS), 4, seed=1)).requires_grad_()
    terms = {"contrastive": contrastive(z, margin), "koleo": 3 * z[0, 0]}
    noise = gradient_noise(terms, z, "contrastive")
    expected = oracle.gradient(lambda at: oracle.contrastive(at, LABELS, margin), z.detach().numpy()).tolist()
    assert tuple(noise) == NAMES
    assert noise["gradient_covariance"].item() == pytest.approx(
        oracle.nuclear_norm(oracle.covariance(expected)), rel=1e-6
    )
    assert noise["direction_covariance"].item() == pytest.approx(
        oracle.nuclear_norm(oracle.covariance(oracle.directions(expected))), rel=1e-6
    )
    total_gradient = oracle.gradient(
        lambda at: oracle.contrastive(at, LABELS, margin) + 3 * at[0, 0], z.detach().numpy()
    ).tolist()
    assert gradient_noise(terms, z, "loss")["gradient_covariance"].item() == pytest.approx(
        oracle.nuclear_norm(oracle.covariance(total_gradient)), rel=1e-6
    )


def test_measuring_does_not_change_the_training() -> None:
    images = random_rows(len(LABELS), 6).float()

    def gradients(measure: bool) -> list[Tensor]:
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 4))
        z = functional.normalize(network(images))
        terms = {"contrastive": contrastive(z, 0.2), "spread": z.std()}
        if measure:
            gradient_noise(terms, z, "contrastive")
            assert all(parameter.grad is None for parameter in network.parameters())
        sum(terms.values()).backward()
        return [*[parameter.grad for parameter in network.parameters()], torch.rand(3)]

    assert all(
        torch.equal(plain, measured)
        for plain, measured in zip(gradients(False), gradients(True), strict=True)
    )


def test_a_term_independent_of_the_embedding_has_no_gradient() -> None:
    z, prototypes = torch.randn(4, 3, requires_grad=True), torch.ones(2, requires_grad=True)
    for term in (prototypes.sum(), torch.zeros(())):
        assert gradient_noise({"diversity": term}, z, "diversity") == dict.fromkeys(
            NAMES, torch.zeros((), dtype=torch.float64)
        )


def test_the_error_lists_the_existing_terms() -> None:
    z = torch.ones(2, 2, requires_grad=True)
    with pytest.raises(UserError, match=r"no loss term 'triplet'") as refused:
        gradient_noise({"contrastive": z.sum(), "koleo": z.sum()}, z, "triplet")
    assert "contrastive, koleo, loss for their sum" in refused.value.remedy
    with pytest.raises(ValueError, match="no graph"):
        gradient_noise({"contrastive": z.sum()}, z.detach(), "contrastive")
