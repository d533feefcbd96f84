"""A sample of the campaign of clusters, and its draws."""

import sys

import pytest

from tests.torture.cluster_training import SEGMENTS
from tests.torture.clusters import AHEAD, TARGETS, Kill, drawn, killed
from tests.torture.gated_training import SEGMENT, alone
from tests.torture.numbered import WITHOUT_EFFECT


def test_draws_every_target_at_steps_after_which_the_training_waits() -> None:
    kills = [drawn(number) for number in range(200)]
    assert kills == [drawn(number) for number in range(200)]
    assert {kill.target for kill in kills} == set(TARGETS)
    assert all(kill.step + AHEAD < SEGMENT * SEGMENTS for kill in kills)
    assert {kill.workers for kill in kills if kill.target == "other workers"} == {1, 3}
    assert {kill.workers for kill in kills if kill.target != "other workers"} == {2}


@pytest.mark.ray
@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_a_kill_of_the_raylet_ends_the_command_and_one_worker_continues() -> None:
    description, problems = killed(Kill("raylet", step=8, seconds=0.1, workers=1), alone(SEGMENTS))
    assert WITHOUT_EFFECT not in description
    assert description.endswith(", second run")
    assert problems == []
