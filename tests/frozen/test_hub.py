"""Networks by names of the Hugging Face hub, from a cache of the hub and without a connection."""

import errno
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from huggingface_hub.errors import RemoteEntryNotFoundError, RepositoryNotFoundError
from PIL import Image
from safetensors.torch import save_file

from tests.methods.test_pretrained import save_picture
from unseen.cli.commands.network import network_of
from unseen.frozen.embedder import Embedder
from unseen.frozen.hub import of_hub
from unseen.frozen.maps import trunk
from unseen.frozen.network import ABOUT, Network, write_network
from unseen.networks import hub, local_weights
from unseen.networks.backbone import require_network
from unseen.networks.hub_names import name_of_timm, repository_of
from unseen.networks.published_network import timm
from unseen.networks.settings import Backbone
from unseen.runtime.errors import UserError

CONFIG: dict[str, Any] = {
    "architecture": "test_resnet",
    "num_classes": 7,
    "num_features": 64,
    "pretrained_cfg": {
        "input_size": [3, 96, 96],
        "crop_pct": 0.8,
        "interpolation": "bilinear",
        "mean": [0.1, 0.2, 0.3],
        "std": [0.4, 0.5, 0.6],
        "num_classes": 7,
        "license": "mit",
        "first_conv": "conv1.0",
        "classifier": "fc",
    },
    "model_args": {"global_pool": "max", "num_classes": 7},
}
Repository = Callable[[object], Path]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """Writes `me/birds` into an empty cache of the hub; the hub itself cannot be reached."""

    def refuse(*_: object) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(local_weights, "getproxies", dict)
    monkeypatch.setattr(local_weights.socket, "getaddrinfo", refuse)
    folder = tmp_path / "hub/models--me--birds"

    def written(config: object) -> Path:
        snapshot = folder / "snapshots/abc"
        snapshot.mkdir(parents=True)
        (folder / "refs").mkdir()
        (folder / "refs/main").write_text("abc")
        (snapshot / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
        torch.manual_seed(0)
        state = timm.create_model("test_resnet", num_classes=7).state_dict()
        save_file(state, snapshot / "model.safetensors")
        return snapshot

    return written


@pytest.mark.parametrize("name", ["me/birds", "hf-hub:me/birds", "hf_hub:me/birds@abc"])
def test_the_vector_is_that_of_timm_and_the_directory_needs_no_hub(
    name: str, repository: Repository, tmp_path: Path
) -> None:
    snapshot = repository(CONFIG)
    reference = timm.create_model(f"local-dir:{snapshot}", pretrained=True, num_classes=0).eval()
    picture = save_picture(tmp_path / "picture.png")
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(reference))
    with torch.inference_mode():
        expected = reference(transform(Image.open(picture))[None])[0]

    write_network(network_of(name, None, None, None, {}), tmp_path / "model")
    about = json.loads((tmp_path / "model" / ABOUT).read_text())
    place = repository_of(name)
    assert about["weights"].startswith(f"model.safetensors of https://huggingface.co/{place}, sha256 ")
    assert (about["network"], about["licence"]) == ("test_resnet", "mit")
    shutil.rmtree(tmp_path / "hub")
    embedder = Embedder(tmp_path / "model")
    assert (embedder.input.size, embedder.input.mean) == (96, (0.1, 0.2, 0.3))
    vector = torch.from_numpy(embedder([picture])[0])
    assert torch.cosine_similarity(vector, expected, dim=0) > 0.9999


def test_arguments_replace_those_of_the_repository_and_a_head_reads_its_maps(
    repository: Repository, tmp_path: Path
) -> None:
    repository(CONFIG)
    network = of_hub(Network("me/birds", size=64, arguments={"global_pool": "avg"}))
    assert (network.arguments, network.size) == ({"global_pool": "avg"}, 64)
    assert trunk(network, tmp_path / "model", (-1,)).input.mean == (0.1, 0.2, 0.3)
    with pytest.raises(UserError, match="weights of me/birds are there"):
        of_hub(Network("me/birds", tmp_path / "w.safetensors"))


@pytest.mark.parametrize(
    ("config", "what", "remedy"),
    [
        (
            {"model_type": "dinov2"},
            r"timm cannot load me/birds.*\(dinov2\)",
            r"_dinov2\.lvd142m",
        ),
        ({}, r"timm cannot load me/birds.*unknown", "any"),
        ({**CONFIG, "architecture": "birdnet"}, "timm has no network 'birdnet'", "another"),
        ({**CONFIG, "pretrained_cfg": {"side": 1}}, "unexpected keyword argument 'side'", "another"),
        ({**CONFIG, "pretrained_cfg": {"crop_mode": "border"}}, "crop mode border", "another"),
        ({**CONFIG, "model_args": {"checkpoint_path": "x.pth"}}, r"contain \['checkpoint_path'\]", "another"),
        ({**CONFIG, "model_args": [1]}, "cannot be used", "another"),
        ("{", "config.json of the repository me/birds cannot be used", "another"),
        ("[]", "config.json of the repository me/birds cannot be used", "another"),
    ],
)
def test_refuses_a_repository_that_timm_cannot_load(
    config: object, what: str, remedy: str, repository: Repository
) -> None:
    repository(config)
    with pytest.raises(UserError, match=what) as refused:
        of_hub(Network("me/birds"))
    assert re.search(remedy, refused.value.remedy)


def test_refuses_weights_of_another_network(repository: Repository, tmp_path: Path) -> None:
    snapshot = repository(CONFIG)
    network = of_hub(Network("me/birds"))
    save_file({"a": torch.zeros(1)}, snapshot / "model.safetensors")
    with pytest.raises(UserError, match=r"does not fit test_resnet: \d+ missing"):
        write_network(network, tmp_path / "model")
    (snapshot / "model.safetensors").write_bytes(b"\x80\x04N.")  # a pickle
    with pytest.raises(UserError, match="SafetensorError"):
        write_network(network, tmp_path / "model")


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (RepositoryNotFoundError, r"https://huggingface\.co/me/birds does not exist"),
        (RemoteEntryNotFoundError, r"has no model\.safetensors\. Pickled weights .* are not read"),
        (ConnectionError, "could not be downloaded: no answer"),
        (OSError, r"^\[Errno 28\] No space left on device$"),
        (None, r"there is no connection to huggingface\.co"),
    ],
)
def test_says_why_weights_are_not_fetched(
    error: Any, what: str, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = repository(CONFIG)
    (snapshot / "model.safetensors").rename(snapshot / "pytorch_model.bin")

    def download(*_: object, **__: object) -> None:
        if error is ConnectionError:
            raise ConnectionError("no answer")
        if error is OSError:
            raise OSError(errno.ENOSPC, "No space left on device")
        raise error("absent", response=SimpleNamespace(headers={}, request=None))

    if error is not None:
        monkeypatch.setattr(local_weights.socket, "getaddrinfo", lambda *_: [])
        monkeypatch.setattr(hub, "hf_hub_download", download)
    with pytest.raises((UserError, OSError), match=what):
        of_hub(Network("me/birds"))


def test_names_of_the_hub_are_those_of_timm_where_timm_has_the_weights() -> None:
    for name in timm.list_pretrained():
        owner, _, own = str(timm.get_pretrained_cfg(name).hf_hub_id).partition("/")
        if owner == "timm":
            assert name_of_timm(f"timm/{own}") == own
            assert timm.get_pretrained_cfg(own).has_weights
    for text in ("hf-hub:timm/resnet50.tv_in1k", "timm/resnet50.tv_in1k", "resnet50.tv_in1k"):
        assert Backbone(name=text).name == of_hub(Network(text)).name == "resnet50.tv_in1k"
    for size in ("small", "base", "large", "giant"):
        for name in (f"facebook/dinov2-{size}", f"hf-hub:facebook/dinov2-with-registers-{size}"):
            assert timm.get_pretrained_cfg(of_hub(Network(name)).name).tag == "lvd142m"
    for name in ("resnet18", "parts.own:Network", "a/b/c", "http://a/b", "timm/resnet18.a1_in1k@main"):
        assert name_of_timm(name) == name
    with pytest.raises(ValueError, match=r"no network 'me/birds'.*--network"):
        require_network("me/birds")
