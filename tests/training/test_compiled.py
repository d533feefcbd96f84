"""training.compile: compiled functions give the numbers of eager ones, each from one graph."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
TOLERANCE = 1e-12  # relative; float64


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """The results of the groups of tests/training/compiled_steps.py, of one process."""
    command = [sys.executable, "-m", "tests.training.compiled_steps"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    printed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return printed


def require_equal(compared: dict[str, dict[str, Any]]) -> None:
    assert compared
    for name, each in compared.items():
        assert each["breaks"] == 0, name
        assert each["loss"] < TOLERANCE, name
        assert each["gradient"] < TOLERANCE, name


def test_steps_of_every_method(results: dict[str, Any]) -> None:
    """The network is one graph, and so is the loss: with a memory one before it starts and one after it is
    full. Passes have one for each size, with and without gradient."""
    compared = results["methods"]
    require_equal(compared)
    graphs = {name: each["graphs"] for name, each in compared.items()}
    assert graphs == dict.fromkeys(graphs, 2) | {"memory": 3, "passes": 5}
    assert all(each["same names"] and each["copies"] for each in compared.values())


@pytest.mark.parametrize("group", ["losses", "poolings"])
def test_every_part_is_one_graph(group: str, results: dict[str, Any]) -> None:
    require_equal(results[group])
    assert {each["graphs"] for each in results[group].values()} == {1}


def test_steps_of_two_workers(results: dict[str, Any]) -> None:
    """Synchronised batch norm communicates within the graph."""
    for compared in results["workers"]:
        require_equal(compared)
        assert {each["graphs"] for each in compared.values()} == {2}


def test_a_killed_training_resumes_to_the_byte(results: dict[str, Any]) -> None:
    outputs = results["training"]
    assert outputs["uninterrupted"]["last.safetensors"]
    assert outputs["resumed"] == outputs["uninterrupted"]
