"""The report of `unseen doctor`."""

import re
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import torch

from tests.params import project
from unseen.cli import doctor
from unseen.cli import main as cli
from unseen.cli.commands import environment
from unseen.networks import lite0


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty caches of the hub and of torch."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path / "torch"))
    return tmp_path


def test_reports_versions_devices_weights_and_data_sets(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["doctor"])
    printed = capsys.readouterr().out
    assert re.search(rf"torch +{re.escape(torch.__version__)}\n", printed)
    for part in ("FAISS", "test_resnet", "built in"):
        assert part in printed
    assert "MISSING" not in printed


def test_lists_the_extras_of_commands_and_the_default_network(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["doctor"])
    printed = capsys.readouterr().out
    assert re.search(r"ok +serve +fastapi \d.*, uvicorn \d.*, prometheus-client \d", printed)
    assert re.search(r"ok +onnx +onnx \d", printed)
    assert re.search(r"ok +default network tf_efficientnet_lite0 +ready: .*\.pth\n", printed)
    installed = doctor.version

    def without(name: str) -> str:
        if name in ("uvicorn", "onnxscript"):
            raise PackageNotFoundError(name)
        return installed(name)

    monkeypatch.setattr(doctor, "version", without)
    monkeypatch.setattr(lite0, "installed", lambda: None)
    cli.main(["doctor"])  # without an error: extras are optional
    printed = capsys.readouterr().out
    assert re.search(r"absent +serve .*uvicorn not installed.*\n +For unseen serve: pip install", printed)
    assert re.search(r"absent +onnx .*onnxscript not installed", printed)
    assert re.search(r"absent +default network tf_efficientnet_lite0 +not ready: extra lite0", printed)


def test_reports_what_the_run_lacks(
    caches: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    params = project(caches, {"run.datasets": ["parts", "cub"], "run.methods": ["ms"], "run.sweeps": []})
    monkeypatch.setattr(doctor, "Params", lambda: params)
    monkeypatch.chdir(caches)
    monkeypatch.setattr(environment, "in_project", lambda: True)
    with pytest.raises(SystemExit) as ended:
        cli.main(["doctor"])
    assert ended.value.code == 1
    missing = [line for line in capsys.readouterr().out.splitlines() if "MISSING" in line]
    assert [line.split()[1] for line in missing] == ["bn_inception", "cub"]
    params = project(caches, {"run.methods": ["gps"]})
    with pytest.raises(SystemExit):
        cli.main(["doctor"])
    assert re.search(
        r"MISSING  params\.yaml  .*unknown methods\.gps\.\n +Did you mean gsp", capsys.readouterr().out
    )


def test_outside_of_a_project_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed = doctor.version

    def without(name: str) -> str:
        if name == "timm":
            raise PackageNotFoundError(name)
        return installed(name)

    monkeypatch.setattr(doctor, "version", without)
    monkeypatch.setattr(environment, "in_project", lambda: False)
    with pytest.raises(SystemExit):
        cli.main(["doctor"])
    printed = capsys.readouterr().out
    assert re.search(r"MISSING  timm +not installed\n +Install it: pip install 'timm\W", printed)
    assert "ok       params.yaml  none: the current directory is in no project" in printed


@pytest.mark.slow
def test_names_the_place_of_weights(caches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, repository = "resnet50.tv_in1k", "models--timm--resnet50.tv_in1k"
    finding = doctor.weights_finding(name, True, None)
    assert (finding.complete, "resnet50.tv_in1k" in finding.state) == (False, True)
    snapshot = caches / "hub" / repository / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").touch()
    (caches / "hub" / repository / "refs").mkdir()
    (caches / "hub" / repository / "refs/main").write_text("abc")
    assert doctor.weights_finding(name, True, None).state == str(snapshot / "model.safetensors")
    assert not doctor.weights_finding("googlenet", True, None).complete
    (caches / "torch/checkpoints").mkdir(parents=True)
    (caches / "torch/checkpoints/googlenet-1378be20.pth").touch()
    damaged = doctor.weights_finding("googlenet", True, None)
    assert (damaged.complete, "the published one with 1378be20" in damaged.state) == (False, True)
    monkeypatch.setattr("unseen.networks.weights.published_weights", dict)
    assert doctor.weights_finding("googlenet", True, None).complete


def test_weights_of_a_checkpoint_and_random_weights(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    assert not doctor.weights_finding("resnet50", True, str(path)).complete
    path.touch()
    assert doctor.weights_finding("resnet50", True, str(path)).state == str(path)
    assert doctor.weights_finding("resnet50", False, None).complete
    assert not doctor.weights_finding("resnet20_preact", True, None).complete


@pytest.mark.parametrize(
    ("kernels", "has_avx512", "slow"),
    [("Haswell", True, True), ("Haswell", False, False), ("SkylakeX", True, False)],
)
def test_names_an_openblas_that_does_not_recognise_the_processor(
    kernels: str,
    has_avx512: bool,
    slow: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    openblas = {"internal_api": "openblas", "version": "0.3.31", "architecture": kernels}
    library = openblas | {"filepath": "/site-packages/numpy.libs/libopenblas.so"}
    monkeypatch.setattr(doctor, "threadpool_info", lambda: [library, {"internal_api": "openmp"}])
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_f": has_avx512})
    cli.main(["doctor"])  # without an error: it is no defect
    printed = capsys.readouterr().out
    mark = "slow" if slow else "ok"
    assert re.search(rf"{mark} +OpenBLAS of numpy +0.3.31, kernels for {kernels}", printed)
    assert ("OPENBLAS_CORETYPE" in printed) == slow
