"""The effective precision of a training."""

import json
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from tests.training import jobs
from tests.training.workers import run_workers
from unseen.training import loop, precision
from unseen.training.precision import with_effective_precision

CPU = torch.device("cpu")
Setting = Literal["float32", "bfloat16", "auto"]


def effective(setting: Setting) -> str:
    recipe = jobs.recipe("baseline", training={"precision": setting})
    return with_effective_precision(recipe, CPU).training.precision


@pytest.mark.parametrize("feature", ["avx512_bf16", "amx_bf16"])
def test_auto_is_bfloat16_where_the_processor_computes_with_it(
    feature: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {feature: True})
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    assert effective("auto") == "bfloat16"
    assert effective("float32") == "float32"


@pytest.mark.parametrize(
    ("capability", "variable", "limit", "expected"),
    [
        ("AVX512", "ONEDNN_MAX_CPU_ISA", "avx2", "float32"),
        ("AVX512", "DNNL_MAX_CPU_ISA", "AVX512_CORE_VNNI", "float32"),
        ("AVX2", "ONEDNN_MAX_CPU_ISA", "ALL", "float32"),
        ("AVX512", "ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", "bfloat16"),
    ],
)
def test_auto_is_float32_where_a_library_would_emulate_bfloat16(
    capability: str, variable: str, limit: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setenv(variable, limit)
    assert effective("auto") == expected


@pytest.mark.parametrize("name", ["test_vit", "test_vit.r160_in1k"])
def test_auto_is_float32_on_a_cpu_for_a_network_that_is_slower_in_bfloat16(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "computes_with_bfloat16", lambda device: True)
    precisions = {
        (setting, where): with_effective_precision(
            jobs.recipe("baseline", backbone={"name": name}, training={"precision": setting}),
            torch.device(where),
        ).training.precision
        for setting in ("auto", "bfloat16")
        for where in ("cpu", "cuda")
    }
    assert precisions.pop(("auto", "cpu")) == "float32"
    assert set(precisions.values()) == {"bfloat16"}


def test_auto_is_float32_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": False, "avx2": True})
    assert effective("auto") == "float32"
    assert effective("bfloat16") == "bfloat16"


def _effective_of_a_worker(rank: int, world: int) -> str:
    precision.computes_with_bfloat16 = lambda device: rank == 0
    return effective("auto")


@pytest.mark.slow
def test_one_processor_without_bfloat16_decides_for_all_workers() -> None:
    assert run_workers(_effective_of_a_worker, 2) == ["float32", "float32"]


@pytest.mark.slow
def test_the_model_records_the_effective_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """bfloat16 changes the weights, and a run of another precision has a state of its own."""
    jobs.write_tiny_set(tmp_path)
    recipe = jobs.recipe("baseline", training={"iterations": 2, "validate_every": 2, "precision": "auto"})
    job = jobs.job(tmp_path, recipe)
    assert job.outputs is not None
    weights: dict[bool, bytes] = {}
    for supported in (False, True):
        features = {"amx_bf16": supported}
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda features=features: features)
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
        loop.train(job, 0, 1, CPU)
        content: dict[str, Any] = json.loads((job.outputs.model / "recipe.json").read_text())
        assert content["recipe"]["training"]["precision"] == ("bfloat16" if supported else "float32")
        weights[supported] = (job.outputs.model / "weights.safetensors").read_bytes()
    assert weights[False] != weights[True]
