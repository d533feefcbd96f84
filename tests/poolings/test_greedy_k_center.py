"""Greedy k-centre equals the loop, also for coinciding points."""

import pytest
import torch

from tests.oracles import poolings as oracle
from unseen.poolings.greedy_k_center import greedy_k_center


@pytest.mark.parametrize("seed", range(5))
def test_choices_equal_the_definition(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    points, initial = torch.randn(40, 3, generator=generator), torch.randn(4, 3, generator=generator)
    chosen = greedy_k_center(points, initial, 12)
    assert chosen.tolist() == oracle.greedy_k_center(points.double().tolist(), initial.double().tolist(), 12)


def test_points_on_a_line() -> None:
    points = torch.tensor([[0.0], [1], [2], [10], [6]])
    assert greedy_k_center(points, torch.tensor([[0.0]]), 3).tolist() == [3, 4, 2]


def test_coinciding_points_are_chosen_once_each() -> None:
    assert sorted(greedy_k_center(torch.ones(4, 2), torch.ones(1, 2), 4).tolist()) == [0, 1, 2, 3]


def test_refuses_too_few_points() -> None:
    with pytest.raises(ValueError, match="cannot choose 3 of 2 points"):
        greedy_k_center(torch.ones(2, 2), torch.ones(1, 2), 3)
