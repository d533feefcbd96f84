"""Published networks: the vector of a picture is that of timm with its own head and preprocessing."""

import errno
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from unseen.frozen.embedder import Embedder
from unseen.frozen.network import (
    ABOUT,
    LINEAR,
    STATISTICS,
    WEIGHTS,
    Network,
    add_linear,
    build_network,
    candidates,
    default_network,
    load_network,
    write_network,
)
from unseen.networks import lite0, local_weights, published_network
from unseen.networks.backbone import Backbone
from unseen.networks.published_network import published, timm
from unseen.runtime.errors import UserError

SMALL = {"depth": 2, "embed_dim": 64, "num_heads": 2}
# Name, arguments that make it small, pixels, and the number of classes with which timm returns the published
# embedding: None keeps a projection.
FAMILIES: dict[str, tuple[str, dict[str, Any], int, int | None]] = {
    "DINOv2": ("vit_small_patch14_dinov2.lvd142m", SMALL, 70, 0),
    "DINOv3": ("vit_small_patch16_dinov3.lvd1689m", SMALL, 64, 0),
    "DINOv3 ConvNeXt": ("convnext_tiny.dinov3_lvd1689m", {"depths": [1, 1, 1, 1]}, 64, 0),
    "SigLIP 2": ("vit_base_patch16_siglip_224.v2_webli", SMALL, 64, 0),
    "PE-Core": ("vit_pe_core_tiny_patch16_384.fb", {**SMALL, "num_heads": 1}, 64, None),
    "CLIP": ("vit_xsmall_patch16_clip_224.tinyclip_yfcc15m", SMALL, 64, None),
    "CLIP ResNet": ("resnet50_clip.openai", {}, 224, None),
    "CLIP ConvNeXt": ("convnext_base.clip_laion2b", {"depths": [1, 1, 1, 1]}, 64, None),
    "EVA-02": ("eva02_tiny_patch14_224.mim_in22k", {**SMALL, "swiglu_mlp": True}, 56, 0),
    "EVA-02-CLIP": ("eva02_base_patch16_clip_224.merged2b", SMALL, 64, None),
    "RADIO": ("vit_base_patch16_radio_v3.c_radio", SMALL, 64, 0),
    "TIPSv2": ("vit_base_patch14_reg1_tipsv2.webli", SMALL, 56, 0),
    "EUPE": ("vit_tiny_patch16_dinov3_qkvb.eupe_lvd1689m", SMALL, 64, 0),
    "AIMv2": ("aimv2_large_patch14_224.apple_pt", SMALL, 56, 0),
    "ConvNeXt V2": ("convnextv2_atto.fcmae_ft_in1k", {}, 64, 0),
    "MobileNetV4": ("mobilenetv4_conv_small_050.e3000_r224_in1k", {}, 64, 0),
    "Hiera": ("hiera_tiny_224.mae_in1k_ft_in1k", {"stages": [1, 1, 1, 1], "embed_dim": 32}, 224, 0),
    "Swin": ("swin_tiny_patch4_window7_224.ms_in1k", {"depths": [1, 1, 1, 1]}, 224, 0),
    "MobileCLIP": ("fastvit_mci0.apple_mclip", {}, 64, None),
    "BEiT v2": ("beitv2_base_patch16_224.in1k_ft_in22k", SMALL, 64, 0),
    "ViT": ("vit_tiny_patch16_224.augreg_in21k_ft_in1k", SMALL, 64, 0),
    "EfficientNet": ("tf_efficientnet_b0.ns_jft_in1k", {}, 64, 0),
    "ResNet": ("resnet18.a1_in1k", {}, 64, 0),
}


def save_picture(path: Path) -> Path:
    """A smooth picture of 90 x 120 pixels."""
    corners = np.random.default_rng(0).integers(0, 256, (5, 4, 3), np.uint8)
    Image.fromarray(corners).resize((90, 120), Image.Resampling.BICUBIC).save(path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_vector_of_a_picture_is_the_published_embedding(family: str, tmp_path: Path) -> None:
    name, arguments, size, classes = FAMILIES[family]
    torch.manual_seed(0)
    reference = timm.create_model(name, **arguments, **({} if classes is None else {"num_classes": classes}))
    for value in reference.state_dict().values():  # zeros at the start would hide a part
        if value.is_floating_point() and not bool(value.any()):
            value.normal_(std=0.1)
    save_file(
        {key: value.contiguous() for key, value in reference.state_dict().items()}, tmp_path / "w.safetensors"
    )
    if size != published(name).size and hasattr(reference, "set_input_size"):
        reference.set_input_size(img_size=(size, size))
    config = timm.data.resolve_model_data_config(reference) | {"input_size": (3, size, size)}
    picture = save_picture(tmp_path / "picture.png")
    with torch.inference_mode():
        tensor = timm.data.create_transform(**config)(Image.open(picture))
        expected = reference.eval()(tensor[None])[0]

    network = Network(name, tmp_path / "w.safetensors", size, arguments=arguments)
    write_network(network, tmp_path / "model")
    embedder = Embedder(tmp_path / "model")
    vector = torch.from_numpy(embedder([picture])[0])
    assert embedder.dim == len(expected)
    assert embedder.input.mean == pytest.approx(config["mean"])
    assert torch.linalg.vector_norm(vector) == pytest.approx(1)
    assert torch.cosine_similarity(vector, expected, dim=0) > 0.99999


def save_weights(path: Path, name: str) -> Path:
    torch.manual_seed(1)
    network = published_network.build(name)
    save_file({key: value.contiguous() for key, value in network.state_dict().items()}, path)
    return path


def test_refuses_weights_with_unknown_statistics_and_lists_candidates(tmp_path: Path) -> None:
    path = save_weights(tmp_path / "own.safetensors", "mobilenetv2_050")
    with pytest.raises(UserError) as refused:
        build_network(Network("mobilenetv2_050", path))
    assert "--statistics imagenet  mean 0.485 0.456 0.406" in refused.value.what
    assert "as mobilenetv2_050.lamb_in1k" in refused.value.what
    assert "--statistics half" in refused.value.what
    assert f"unseen measure PHOTOS --network mobilenetv2_050 --weights {path}" in refused.value.remedy
    with pytest.raises(UserError, match="neither a name of statistics nor of published weights"):
        build_network(Network("mobilenetv2_050", path, statistics="imagnet"))


@pytest.mark.parametrize(
    ("name", "statistics", "mean"),
    [
        ("mobilenetv2_050", "half", 0.5),
        ("mobilenetv2_050", "tf_efficientnet_lite0.in1k", 0.5),
        ("mobilenetv2_050.lamb_in1k", None, 0.485),
        ("mobilenetv2_050.lamb_in1k", "none", 0.0),
    ],
)
def test_statistics_of_a_file_are_named_or_those_of_the_tag(
    name: str, statistics: str | None, mean: float, tmp_path: Path
) -> None:
    path = save_weights(tmp_path / "own.safetensors", "mobilenetv2_050")
    loaded, origin = build_network(Network(name, path, 32, statistics))
    assert loaded.input.mean is not None
    assert loaded.input.mean[0] == mean
    assert (loaded.input.size, loaded.input.resize) == (32, 36)
    assert origin.startswith("own.safetensors, sha256 ")


def test_candidates_begin_with_the_published_weights() -> None:
    assert list(candidates("vit_tiny_patch16_224")) == ["half", "imagenet", "clip", "none"]
    assert candidates("mobilenetv2_050")["imagenet"] == STATISTICS["imagenet"]
    assert "vit_large_patch16_dinov3.sat493m" in candidates("vit_large_patch16_dinov3")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "problem"),
    [
        (Network("resnet19"), "no network 'resnet19'. Did you mean"),
        (
            Network("resnet18.nowhere"),
            "no published weights resnet18.nowhere; of this network it has resnet18.a1_in1k",
        ),
        (Network("vit_base_patch16_sapiens2"), "only squares"),
        (Network("hiera_tiny_224.mae", Path("x"), 192), "accepts only pictures of 224 x 224"),
        (Network("resnet18.a1_in1k", Path("nowhere.pth")), "nowhere.pth cannot be read"),
        (
            Network("resnet18.a1_in1k", Path("x"), arguments={"depth": 3}),
            "timm cannot build resnet18.a1_in1k",
        ),
        (Network("test_vit.r160_in1k", Path("x"), 7), "cannot be resized to 7 x 7|does not accept pictures"),
    ],
)
def test_refuses_networks_that_cannot_be_built(network: Network, problem: str) -> None:
    with pytest.raises(UserError) as refused:
        build_network(network)
    assert any(part in str(refused.value) for part in problem.split("|"))


@pytest.mark.slow
def test_weights_of_another_network_and_a_damaged_directory_are_errors(tmp_path: Path) -> None:
    path = save_weights(tmp_path / "own.safetensors", "mobilenetv2_050")
    with pytest.raises(UserError, match=r"does not fit resnet18\.a1_in1k: .* missing"):
        build_network(Network("resnet18.a1_in1k", path))
    network = Network("mobilenetv2_050.lamb_in1k", path, 32, arguments={"pad_type": "same"})
    write_network(network, tmp_path / "model")
    about = json.loads((tmp_path / "model" / ABOUT).read_text())
    assert about["arguments"] == {"pad_type": "same"}
    assert about["input"]["interpolation"] == "bicubic"
    assert load_network(tmp_path / "model").method.dim == 1280
    weights = load_file(tmp_path / "model/weights.safetensors")
    weights.popitem()
    save_file(weights, tmp_path / "model/weights.safetensors")
    with pytest.raises(UserError, match=r"weights\.safetensors is missing, damaged or of another network"):
        load_network(tmp_path / "model")
    (tmp_path / "model" / ABOUT).write_text("{}")
    with pytest.raises(UserError, match=r"network\.json cannot be used"):
        load_network(tmp_path / "model")


def test_names_one_changed_digit_and_one_flipped_bit(tmp_path: Path) -> None:
    """A network of an earlier version has neither seal nor digests."""
    network = Network(
        "mobilenetv2_050.lamb_in1k", save_weights(tmp_path / "own.safetensors", "mobilenetv2_050"), 32
    )
    model = tmp_path / "model"
    write_network(network, model)
    add_linear(model, torch.eye(1280), {})
    load_network(model)
    about = (model / ABOUT).read_text()
    for name in (WEIGHTS, LINEAR):
        content = (model / name).read_bytes()
        (model / name).write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
        with pytest.raises(UserError, match=rf"{name} is missing, damaged .*its sha256 is not that"):
            load_network(model)
        (model / name).write_bytes(content)
    (model / ABOUT).write_text(about.replace("0.485", "0.484"))
    with pytest.raises(UserError, match=r"network\.json differs from its sha256"):
        load_network(model)
    earlier = {name: value for name, value in json.loads(about).items() if "sha256" not in name}
    (model / ABOUT).write_text(json.dumps(earlier))
    load_network(model)
    (model / ABOUT).write_text(json.dumps(earlier | {"schema_version": 9}))
    with pytest.raises(UserError, match=r"network\.json cannot be used: its schema version is 9, expected 1"):
        load_network(model)
    with pytest.raises(ValueError, match="not loaded from a directory has no files"):
        Embedder(network).fingerprint()


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("mit_b1", "pytorch_model.bin of https://huggingface.co/nvidia/mit-b1"),
        ("gcvit_xxtiny.in1k", "https://github.com/.*/gcvit_xxtiny_224_nvidia-d1d86009.pth"),
        ("resnet18.a1_in1k", "model.safetensors of https://huggingface.co/timm/resnet18.a1_in1k"),
    ],
)
def test_names_the_published_file_of_a_network(
    name: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    assert re.fullmatch(file, local_weights.weights_of(name).file)
    saved = tmp_path / "hub/checkpoints" / Path(file).name
    saved.parent.mkdir(parents=True)
    saved.touch()
    assert (local_weights.weights_of(name).path == saved) is (name == "gcvit_xxtiny.in1k")


def test_a_network_without_published_weights_is_an_error() -> None:
    with pytest.raises(ValueError, match="test_mambaout has no published weights"):
        local_weights.weights_of("test_mambaout")


@pytest.mark.parametrize("name", [ABOUT, WEIGHTS, LINEAR])
@pytest.mark.parametrize("kind", ["pipe", "directory"])
def test_refuses_a_pipe_or_directory_in_the_place_of_a_file(tmp_path: Path, name: str, kind: str) -> None:
    network = Network(
        "mobilenetv2_050.lamb_in1k", save_weights(tmp_path / "own.safetensors", "mobilenetv2_050"), 32
    )
    write_network(network, tmp_path / "model")
    add_linear(tmp_path / "model", torch.eye(1280), {})
    (tmp_path / "model" / name).unlink()
    path = tmp_path / "model" / name
    os.mkfifo(path) if kind == "pipe" else path.mkdir()
    with pytest.raises(UserError, match=rf"{name} .*(it is a named pipe|Is a directory)"):
        Embedder(tmp_path / "model")


def test_names_the_file_if_the_weights_cannot_be_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr("timm.models._builder.load_pretrained", refuse)
    with pytest.raises(UserError, match=r"resnet18\.a1_in1k could not be downloaded from https") as refused:
        build_network(Network("resnet18"))
    assert "--network resnet18.a1_in1k --weights FILE" in refused.value.remedy


def test_a_full_disk_is_no_problem_of_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(local_weights.socket, "getaddrinfo", lambda *_: [])
    monkeypatch.setattr("timm.models._builder.load_pretrained", fill)
    with pytest.raises(OSError, match="No space left on device"):
        build_network(Network("resnet18"))


def test_without_a_connection_nothing_is_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise OSError("Name or service not known")

    def download(*_: object, **__: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("timm.models._builder.load_pretrained", download)
    monkeypatch.setattr(local_weights, "getproxies", dict)
    monkeypatch.setattr(local_weights.socket, "getaddrinfo", unknown)
    with pytest.raises(UserError, match=r"there is no connection to huggingface\.co\.") as refused:
        build_network(Network("resnet18"))
    assert "--weights FILE" in refused.value.remedy
    with pytest.raises(FileNotFoundError, match=r"could not be fetched \(ConnectionError\)"):
        Backbone("resnet18", pretrained=True)
    monkeypatch.setattr(local_weights, "getproxies", lambda: {"https": "proxy:3128"})
    with pytest.raises(UserError, match="RuntimeError"):
        build_network(Network("resnet18"))


def test_the_default_network_needs_the_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lite0, "PACKAGE", "no_such_package")
    with pytest.raises(UserError, match="is not installed") as refused:
        default_network()
    assert "unseen[lite0]" in refused.value.remedy
    assert "--network vit_base_patch16_siglip_256.v2_webli (Apache-2.0)" in refused.value.remedy
    published("vit_base_patch16_siglip_256.v2_webli")
    monkeypatch.setattr(lite0, "installed", lambda: Path("file"))
    assert default_network() == Network("tf_efficientnet_lite0")
