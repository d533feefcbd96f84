"""training.compile: compiled functions give the numbers of eager ones, each from one graph."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
TOLERANCE = 1e-12  # relative; float64


def result_of(group: str) -> Any:
    """The result of a group of tests/training/compiled_steps.py."""
    command = [sys.executable, "-m", "tests.training.compiled_steps", group]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def require_equal(compared: dict[str, dict[str, Any]]) -> None:
    assert compared
    for name, each in compared.items():
        assert each["breaks"] == 0, name
        assert each["loss"] < TOLERANCE, name
        assert each["gradient"] < TOLERANCE, name


@pytest.mark.parametrize(("group", "more_graphs"), [("methods", {}), ("states", {"memory": 3, "passes": 5})])
def test_steps_of_every_method(group: str, more_graphs: dict[str, int]) -> None:
    """The network is one graph, and so is the loss: with a memory one before it starts and one after it is
    full. Passes have one for each size, with and without gradient."""
    compared = result_of(group)
    require_equal(compared)
    graphs = {name: each["graphs"] for name, each in compared.items()}
    assert graphs == dict.fromkeys(graphs, 2) | more_graphs
    assert all(each["same names"] and each["copies"] for each in compared.values())


@pytest.mark.parametrize("group", ["losses", "poolings"])
def test_every_part_is_one_graph(group: str) -> None:
    compared = result_of(group)
    require_equal(compared)
    assert {each["graphs"] for each in compared.values()} == {1}


def test_steps_of_two_workers() -> None:
    """Synchronised batch norm communicates within the graph."""
    for compared in result_of("workers"):
        require_equal(compared)
        assert {each["graphs"] for each in compared.values()} == {2}


def test_a_killed_training_resumes_to_the_byte() -> None:
    outputs = result_of("training")
    assert outputs["uninterrupted"]["last.safetensors"]
    assert outputs["resumed"] == outputs["uninterrupted"]
