"""The guard around torchvision: it changes no healthy installation, declares a missing operator, and raises
every other error."""

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest
import torch

from unseen.networks import torchvision_guard as guard
from unseen.networks.backbone import timm


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Replaces the import of torchvision by one that raises the given errors in turn and then succeeds.
    Returns the record of its calls."""

    def install(*errors: Exception) -> list[str]:
        calls: list[str] = []
        waiting = list(errors)

        def import_module(name: str) -> ModuleType:
            calls.append(name)
            if waiting:
                sys.modules["torchvision.half_imported"] = ModuleType("torchvision.half_imported")
                raise waiting.pop(0)
            return ModuleType(name)

        monkeypatch.setattr(guard, "importlib", SimpleNamespace(import_module=import_module))
        monkeypatch.setattr(guard, "_library", None)
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            monkeypatch.setitem(sys.modules, name, sys.modules[name])  # monkeypatch restores it
        return calls

    yield install
    sys.modules.pop("torchvision.half_imported", None)


def test_timm_and_torchvision_can_be_imported() -> None:
    assert guard.ensure_torchvision() in ("native", "declared")
    assert "torchvision" in sys.modules
    assert timm.is_model("resnet50")


def test_a_healthy_installation_is_unchanged(imports: Callable[..., list[str]]) -> None:
    calls = imports()
    assert guard.ensure_torchvision() == "native"
    assert calls == ["torchvision"]
    assert guard._library is None


def test_declares_missing_operators_and_repeats_the_import(imports: Callable[..., list[str]]) -> None:
    calls = imports(RuntimeError("operator torchvision::nms does not exist"))
    assert guard.ensure_torchvision() == "declared"
    assert len(calls) == 2
    assert "torchvision.half_imported" not in sys.modules
    assert "iou_threshold" in str(torch.ops.torchvision.nms.default._schema)


@pytest.mark.parametrize(
    "error", [RuntimeError("out of memory"), ModuleNotFoundError("No module named 'torchvision'")]
)
def test_raises_every_other_error(imports: Callable[..., list[str]], error: Exception) -> None:
    calls = imports(error)
    with pytest.raises(type(error), match=str(error)):
        guard.ensure_torchvision()
    assert len(calls) == 1


def test_reports_an_unknown_operator(imports: Callable[..., list[str]]) -> None:
    unknown = RuntimeError("operator torchvision::sharpen does not exist")
    calls = imports(unknown, unknown)
    with pytest.raises(RuntimeError, match="sharpen"):
        guard.ensure_torchvision()
    assert len(calls) == 2
