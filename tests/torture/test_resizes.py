"""A sample of the campaign of resizes, its draws and its comparison."""

import sys

import pytest

from tests.torture.gated_training import SEGMENT, alone, differences
from tests.torture.resizes import MOST, RESIZES, drawn, resized

ROWS = [{"iteration": 12.0, "loss": 0.5, "recall_at_1": 0.0}]


def test_draws_resizes_between_one_and_three_nodes_one_per_segment() -> None:
    names = set()
    for number in range(50):
        nodes, resizes = drawn(number)
        assert (nodes, resizes) == drawn(number)
        assert len(resizes) == RESIZES
        for index, (name, step) in enumerate(resizes):
            nodes += {"join": 1, "leave": -1}[name]
            names.add((name, nodes))
            assert 1 <= nodes <= MOST
            assert index * SEGMENT < step <= (index + 1) * SEGMENT
    assert names == {("join", 2), ("join", 3), ("leave", 1), ("leave", 2)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": 0.5 + 4e-7}, None),
        ({"loss": 0.5 + 6e-7}, "loss of step 12 is"),
        ({"recall_at_1": 0.01}, "recall_at_1 of step 12 is"),
        ({"map_at_r": 1.0}, "other columns"),
    ],
)
def test_names_values_that_differ(changes: dict[str, float], message: str | None) -> None:
    problems = differences([ROWS[0] | changes], ROWS)
    assert len(problems) == (message is not None)
    assert message is None or message in problems[0]


def test_a_missing_row_is_a_difference() -> None:
    assert differences([], ROWS) == ["the history has 0 rows, or other columns"]


@pytest.mark.ray
@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_a_node_that_joins_and_one_that_leaves_change_no_loss() -> None:
    description, problems = resized(1, [("join", 3), ("leave", SEGMENT + 3)], alone(3))
    assert (description, problems) == ("1 joins, 1 leaves: 1 2 1 workers", [])
