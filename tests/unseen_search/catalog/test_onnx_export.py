"""The exported models agree with PyTorch, for any number of pictures."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.packages import require
from tests.photos import picture, save_model
from unseen.cli import main as cli
from unseen.data.decode import decode
from unseen.data.transforms import crop_for_testing
from unseen.frozen.embedder import Embedder
from unseen.frozen.network import Network, add_linear, write_network
from unseen.networks.published_network import timm
from unseen.runtime.errors import UserError
from unseen.runtime.stage import ROOT
from unseen_search.catalog.export_model import export_model


def save_network(directory: Path, name: str = "test_vit.r160_in1k", size: int = 64) -> Path:
    torch.manual_seed(0)
    network = timm.create_model(name, num_classes=0)
    save_file(network.state_dict(), directory.with_suffix(".safetensors"))
    write_network(Network(name, directory.with_suffix(".safetensors"), size), directory)
    dim = network.num_features
    add_linear(
        directory, torch.eye(dim) + 0.1 * torch.randn(dim, dim), {"loss": "nsoftmax", "steps": 5} | COUNTS
    )
    return directory


COUNTS = {"photos": 1200, "classes": 30, "measured": False}


EXPORT = """
import sys
from unseen.cli import main as cli
for directory in sys.argv[1:]:
    cli.main(["export-model", f"{directory}/model", f"{directory}/out"])
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders with a model and its export, by the kind of the model. The command runs in a process without
    the type checks of the tests, which torch.export cannot trace."""
    require("onnx", importlib.util.find_spec("onnxruntime"))
    folders = {kind: tmp_path_factory.mktemp(kind) for kind in ("trained", "network")}
    save_model(folders["trained"] / "model", 1)
    save_network(folders["network"] / "model")
    command = [sys.executable, "-c", EXPORT, *map(str, folders.values())]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "UserWarning" not in run.stderr
    return folders


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["trained", "network"])
def test_onnxruntime_and_torch_export_give_the_vectors_of_the_embedder(
    kind: str, exported: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxruntime

    model, out = exported[kind] / "model", exported[kind] / "out"
    embedder = Embedder(model)
    files = [picture(seed, "PNG") for seed in range(5)]
    about = json.loads((out / "preprocessing.json").read_text())
    size = about["crop"]["size"]
    pixels = np.empty((5, 3, size, size), np.uint8)
    for planes, encoded in zip(pixels, files, strict=True):
        crop_for_testing(decode(np.frombuffer(encoded, np.uint8)), embedder.input, planes)
    assert str(ROOT).encode() not in (out / "model.onnx").read_bytes(), "the file is that of any installation"
    session = onnxruntime.InferenceSession(out / "model.onnx")
    shape = ["batch", 3, size, size]
    assert about["input"] == {"name": "pixels", "type": "uint8", "shape": shape}
    shape = ["batch", embedder.dim]
    assert about["output"] == {"name": "embedding", "type": "float32", "shape": shape, "length": 1.0}
    names = [[value.name for value in side] for side in (session.get_inputs(), session.get_outputs())]
    assert names == [["pixels"], ["embedding"]]
    (vectors,) = session.run(None, {"pixels": pixels})
    assert vectors.shape == (5, embedder.dim)
    assert np.abs(vectors - embedder(files)).max() < 1e-4
    program = torch.export.load(out / "model.pt2").module()
    with torch.inference_mode():
        traced = program(torch.from_numpy(pixels)).numpy()
    assert np.abs(traced - embedder(files)).max() < 1e-4
    assert about["resize"] == (embedder.input.resize or size)
    card = (out / "README.md").read_text(encoding="utf-8")
    assert embedder.fingerprint() in card
    if kind == "network":
        assert "1,200 photos of 30 classes" in card
        assert "measured on a training with fewer classes" in card
    else:
        assert "12 images of 3 classes" in card

    def save(path: Path, external_data: bool) -> None:
        shutil.copyfile(out / "model.onnx", path)

    program = SimpleNamespace(model=SimpleNamespace(graph=SimpleNamespace(all_nodes=list)), save=save)
    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: program)
    other = save_model(tmp_path / "other", 2) if kind == "trained" else model
    if kind == "trained":
        with pytest.raises(UserError, match="differ by"):
            export_model(other, tmp_path / "refused")
        assert not (tmp_path / "refused").exists()
    else:
        assert max(export_model(other, tmp_path / "again").values()) < 1e-4


def test_refuses_an_existing_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["export-model", str(tmp_path), str(tmp_path)])
    assert "exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "reason"),
    [(RuntimeError("no such operator\nat line 1"), "no such operator"), (AssertionError(), "AssertionError")],
)
def test_a_model_that_cannot_be_traced_is_an_error(
    error: Exception, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("onnx", importlib.util.find_spec("onnxruntime"))

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(torch.export, "export", fail)
    with pytest.raises(UserError, match=rf"model cannot be traced: {reason}\n.*from Python"):
        export_model(save_model(tmp_path / "model", 1), tmp_path / "out")


def test_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UserError, match=r"onnxruntime(.|\n)*unseen\[onnx\]"):
        export_model(save_model(tmp_path / "model", 1), tmp_path / "out")
