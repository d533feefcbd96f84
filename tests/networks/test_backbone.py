"""Backbones of timm: their maps, loaded weights, and refused arguments."""

import copy
import errno
import io
import tarfile
import tempfile
from pathlib import Path
from typing import Literal
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from unseen.methods.build import build_method
from unseen.methods.settings import BaselineRecipe
from unseen.networks import backbone, checkpoint
from unseen.networks.backbone import Backbone, timm


def trained(name: str, **arguments: object) -> nn.Module:
    """A timm network with its classifier. No parameter has its initial value."""
    torch.manual_seed(1)
    network = timm.create_model(name, **arguments)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.05)
    return network.eval()


@pytest.mark.parametrize(
    ("name", "arguments", "stages", "shapes"),
    [
        ("test_resnet", {}, (-1,), [(96, 2, 2)]),
        ("test_resnet", {"output_stride": 8}, (-2, -1), [(192, 8, 8), (96, 8, 8)]),
        ("test_efficientnet", {}, (-1, 0, 2), [(256, 2, 2), (16, 32, 32), (32, 8, 8)]),
        ("test_byobnet", {}, (3,), [(128, 4, 4)]),
        ("test_convnext", {}, (-2, -1), [(48, 4, 4), (64, 2, 2)]),
        ("test_mambaout", {}, (-1,), [(64, 2, 2)]),  # channels last inside
        ("test_vit", {"img_size": 64, "patch_size": 8}, (-1, 1), [(64, 8, 8), (64, 8, 8)]),
    ],
)
def test_maps_of_the_requested_stages(
    name: str, arguments: dict, stages: tuple[int, ...], shapes: list[tuple[int, ...]]
) -> None:
    network = Backbone(name, arguments=arguments, stages=stages)
    features = network(torch.randn(2, 3, 64, 64))
    assert [tuple(map.shape[1:]) for map in features.maps] == shapes
    assert network.channels == tuple(shape[0] for shape in shapes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "channels"),
    [
        ("mobilenetv2_100", 1280),
        ("efficientnet_b0", 1280),
        ("mobilenetv3_large_100", 960),
        ("mobilenetv3_small_050", 288),
    ],
)
def test_only_the_last_map_passes_the_closing_convolution(name: str, channels: int) -> None:
    source = trained(name)
    count = len(source.feature_info)
    network = Backbone(name, stages=tuple(range(count))).eval()
    incompatible = network.network.load_state_dict(source.state_dict(), strict=False)
    assert incompatible.missing_keys == []
    source.to(memory_format=torch.channels_last)  # the layout of a Backbone, for equal bits
    images = torch.randn(2, 3, 64, 64).contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        *blocks, last = network(images).maps
        expected = source.forward_intermediates(images, indices=list(range(count)), intermediates_only=True)
        closing = source.forward_features(images)
    assert network.channels == (*(info["num_chs"] for info in source.feature_info[:-1]), channels)
    assert last.shape[1] == channels
    assert torch.equal(last, closing)
    assert all(torch.equal(actual, map) for actual, map in zip(blocks, expected[:-1], strict=True))


def test_a_closing_convolution_that_no_map_needs_is_removed() -> None:
    network = Backbone("mobilenetv2_100", stages=(-2,))
    assert network.channels == (96,)
    assert not any(key.startswith(("conv_head", "bn2")) for key in network.network.state_dict())


@pytest.mark.parametrize(
    "name", ["test_resnet", "test_efficientnet", "test_byobnet", "test_convnext", "test_vit"]
)
@pytest.mark.parametrize("stages", [(-1,), (-2, -1), (-2,)])
def test_every_kept_parameter_has_a_gradient(name: str, stages: tuple[int, ...]) -> None:
    network = Backbone(name, stages=stages)
    features = network(torch.randn(2, 3, 64, 64))
    loss = sum(map.square().sum() for map in features.maps)
    if features.cls is not None:
        loss = loss + features.cls.square().sum()
    loss.backward()
    assert [key for key, parameter in network.named_parameters() if parameter.grad is None] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["test_resnet", "test_efficientnet", "test_byobnet", "test_convnext", "test_vit", "googlenet"]
)
def test_channels_last_equals_contiguous_weights(name: str) -> None:
    torch.manual_seed(0)
    network = Backbone(name).double()
    reference = copy.deepcopy(network).to(memory_format=torch.contiguous_format)
    weights = [
        parameter
        for parameter in network.parameters()
        if parameter.ndim == 4 and min(parameter.shape[1:3]) > 1
    ]
    assert weights
    assert all(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights)
    images = torch.randn(3, 3, 64, 64, dtype=torch.float64)
    # One operand with channels last selects that layout, so the reference has contiguous images too.
    forward = reference.network.forward_intermediates
    reference.network.forward_intermediates = lambda images, **named: forward(images.contiguous(), **named)
    for model in (network, reference):
        values = model(images).maps[0]
        (
            values * torch.linspace(-1, 1, values.numel(), dtype=torch.float64).view(values.shape)
        ).sum().backward()
    gradients, expected = (
        {key: p.grad for key, p in model.named_parameters()} for model in (network, reference)
    )
    # of gradients that are zero
    rounding = 1e-12 * max(float(gradient.abs().max()) for gradient in expected.values())
    for key, gradient in expected.items():
        error = float((gradients[key] - gradient).abs().max())
        assert error <= 1e-9 * float(gradient.abs().max()) + rounding, key
    network.eval()
    reference.eval()
    torch.testing.assert_close(network(images).maps[0], reference(images).maps[0], rtol=1e-9, atol=1e-12)


def test_tokens_pass_the_final_norm() -> None:
    torch.manual_seed(0)
    network = Backbone("test_vit", arguments={"img_size": 64, "patch_size": 8}).eval()
    images = torch.randn(2, 3, 64, 64)
    features = network(images)
    tokens = network.network.forward_features(images)
    torch.testing.assert_close(features.cls, tokens[:, 0])
    torch.testing.assert_close(features.maps[0].flatten(2).transpose(1, 2), tokens[:, 1:])
    assert network.cls_channels == 64


def test_a_distilled_network_excludes_both_tokens_from_the_map() -> None:
    torch.manual_seed(0)
    network = Backbone("deit_tiny_distilled_patch16_224", arguments={"img_size": 32, "depth": 1}).eval()
    images = torch.randn(1, 3, 32, 32)
    features = network(images)
    tokens = network.network.forward_features(images)
    assert tokens.shape[1] == 2 + 4
    torch.testing.assert_close(features.cls, tokens[:, 0])
    torch.testing.assert_close(features.maps[0].flatten(2).transpose(1, 2), tokens[:, 2:])


def test_networks_without_a_class_token_give_none() -> None:
    for name in ("test_resnet", "test_vit2"):
        network = Backbone(name)
        assert network.cls_channels is None
        assert network(torch.randn(2, 3, 64, 64)).cls is None


def test_input_size_is_that_of_networks_with_a_fixed_size() -> None:
    assert Backbone("test_resnet").input_size is None
    assert Backbone("test_vit").input_size is None  # interpolates its position embedding
    assert Backbone("test_vit3", arguments={"img_size": 64, "patch_size": 8}).input_size == (64, 64)


def test_frozen_statistics_stay_in_train_mode() -> None:
    network = Backbone("test_resnet", batch_norm="frozen").train()
    state_before = {key: value.clone() for key, value in network.state_dict().items()}
    network(torch.randn(4, 3, 64, 64))
    assert network.training
    assert all(torch.equal(state_before[key], value) for key, value in network.state_dict().items())
    moving = Backbone("test_resnet", batch_norm="batch").train()
    state_before = {key: value.clone() for key, value in moving.state_dict().items() if "running_mean" in key}
    moving(torch.randn(4, 3, 64, 64))
    assert not any(torch.equal(state_before[key], moving.state_dict()[key]) for key in state_before)


@pytest.mark.parametrize("batch_norm", ["batch", "frozen"])
def test_the_momentum_of_batch_norm_is_set(batch_norm: Literal["batch", "frozen"]) -> None:
    default = Backbone("test_resnet", batch_norm=batch_norm)
    changed = Backbone("test_resnet", batch_norm=batch_norm, batch_norm_momentum=0.9)
    for network, momentum in ((default, 0.1), (changed, 0.9)):
        norms = [module for module in network.modules() if hasattr(module, "running_mean")]
        assert norms
        assert {norm.momentum for norm in norms} == {momentum}


def test_fixed_batch_norm_keeps_statistics_scale_and_shift() -> None:
    torch.manual_seed(0)
    network = Backbone("test_resnet", batch_norm="fixed").train()
    state_before = {key: value.clone() for key, value in network.state_dict().items()}
    network(torch.randn(4, 3, 64, 64)).maps[0].square().sum().backward()
    norms = {
        f"{path}.{name}"
        for path, module in network.named_modules()
        if isinstance(module, _BatchNorm)
        for name, _ in module.named_parameters()
    }
    assert len(norms) > 20
    assert {key for key, parameter in network.named_parameters() if parameter.grad is None} == norms
    assert all(torch.equal(state_before[key], value) for key, value in network.state_dict().items())
    assert network.state_dict().keys() == Backbone("test_resnet", batch_norm="frozen").state_dict().keys()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "count", "first", "last"),
    [
        ("resnet50.tv_in1k", 1 + 3 + 4 + 6 + 3, "conv1.weight", "layer4.2.bn3.bias"),
        ("deit_small_patch16_224", 1 + 12, "pos_embed", "norm.bias"),
        ("deit_small_distilled_patch16_224", 1 + 12, "dist_token", "norm.bias"),
        ("mobilenetv2_100", None, "conv_stem.weight", "bn2.bias"),
        ("test_convnext", None, "stem.0.weight", "stages.3.blocks.1.mlp.fc2.bias"),
    ],
)
def test_layers_are_ordered_from_the_stem_to_the_last_block(
    name: str, count: int | None, first: str, last: str
) -> None:
    with torch.device("meta"):
        network = Backbone(name)
    layers = network.layers()
    names = {id(parameter): key for key, parameter in network.network.named_parameters()}
    assert sorted(names[id(p)] for layer in layers for p in layer) == sorted(names.values())
    assert count in (None, len(layers))
    assert first in {names[id(p)] for p in layers[0]}
    assert last in {names[id(p)] for p in layers[-1]}


def test_refuses_a_network_without_named_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Backbone("test_resnet")
    monkeypatch.delattr(type(network.network), "group_matcher")
    with pytest.raises(ValueError, match="timm does not define the layers of test_resnet"):
        network.layers()


@pytest.mark.parametrize(
    "kind", ["safetensors", "half safetensors without classifier", "pth", "pth of a training"]
)
@pytest.mark.parametrize("name", ["test_resnet", "test_efficientnet", "test_vit"])
def test_checkpoints_load_with_and_without_a_classifier(tmp_path: Path, kind: str, name: str) -> None:
    source = trained(name)
    state = {key: value.contiguous() for key, value in source.state_dict().items()}
    path = tmp_path / ("weights.safetensors" if "safetensors" in kind else "weights.pth")
    if kind == "safetensors":
        save_file(state, path)
    elif "half" in kind:
        classifier = source.default_cfg["classifier"]
        save_file(
            {
                k: v.half() if v.is_floating_point() else v
                for k, v in state.items()
                if not k.startswith(f"{classifier}.")
            },
            path,
        )
    else:
        torch.save(
            state
            if kind == "pth"
            else {"state_dict": {f"module.{k}": v for k, v in state.items()}, "epoch": 3},
            path,
        )
    loaded = Backbone(name, pretrained=True, checkpoint=path).eval()
    size = 64 if name != "test_vit" else 160
    images = torch.randn(2, 3, size, size)
    expected = source.forward_intermediates(
        images, indices=[-1 % len(source.feature_info)], norm=True, intermediates_only=True
    )[0]
    if name == "test_efficientnet":  # after its closing convolution
        expected = source.forward_features(images)
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if "half" in kind else {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(loaded(images).maps[0], expected, **tolerance)
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.float32}


def test_resamples_positions_of_another_image_size(tmp_path: Path) -> None:
    source = trained("test_vit")
    save_file(
        {key: value.contiguous() for key, value in source.state_dict().items()},
        tmp_path / "weights.safetensors",
    )
    loaded = Backbone("test_vit", checkpoint=tmp_path / "weights.safetensors", arguments={"img_size": 64})
    assert loaded.network.pos_embed.shape[1] == 1 + 16


def test_resamples_positions_of_a_distilled_network_without_its_tokens(
    tmp_path: Path,
) -> None:
    source = trained("deit_tiny_distilled_patch16_224", img_size=64, depth=1)
    torch.save({"model": source.state_dict()}, tmp_path / "weights.pth")
    loaded = Backbone(
        "deit_tiny_distilled_patch16_224",
        checkpoint=tmp_path / "weights.pth",
        arguments={"img_size": 96, "depth": 1},
    )
    loaded_positions, source_positions = loaded.network.pos_embed.detach(), source.pos_embed.detach()
    assert loaded_positions.shape[1] == 2 + 36
    assert torch.equal(loaded_positions[:, :2], source_positions[:, :2])
    grid = functional.interpolate(
        source_positions[:, 2:].transpose(1, 2).unflatten(2, (4, 4)),
        (6, 6),
        mode="bicubic",
        antialias=True,
        align_corners=False,
    )
    torch.testing.assert_close(loaded_positions[:, 2:], grid.flatten(2).transpose(1, 2))
    assert loaded.input_size == (96, 96)


def test_a_vision_transformer_accepts_any_size_if_configured() -> None:
    torch.manual_seed(0)
    arguments = {"img_size": 64, "depth": 2}
    fixed = Backbone("deit_tiny_patch16_224", arguments=arguments).eval()
    dynamic = Backbone(
        "deit_tiny_patch16_224", arguments=arguments | {"dynamic_img_size": True}, stages=(0, -1)
    ).eval()
    dynamic.network.load_state_dict(fixed.network.state_dict())
    assert (fixed.input_size, dynamic.input_size) == ((64, 64), None)
    images = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(dynamic(images).maps[1], fixed(images).maps[0])
    torch.testing.assert_close(dynamic(images).cls, fixed(images).cls)
    wide = dynamic(torch.randn(2, 3, 64, 96))
    assert [tuple(map.shape) for map in wide.maps] == [(2, 192, 4, 6)] * 2
    assert wide.cls.shape == (2, 192)


def test_the_class_token_of_a_distilled_network_is_not_averaged() -> None:
    torch.manual_seed(0)
    for training in (False, True):
        network = Backbone("deit_tiny_distilled_patch16_224", arguments={"img_size": 32, "depth": 1}).train(
            training
        )
        images = torch.randn(2, 3, 32, 32)
        first, second = network.network.forward_features(images)[:, :2].unbind(1)
        assert float((first - second).detach().abs().max()) > 0.1
        torch.testing.assert_close(network(images).cls, first)


def test_the_error_names_weights_of_another_network(tmp_path: Path) -> None:
    state = {key: value.contiguous() for key, value in trained("test_resnet").state_dict().items()}
    state["layer1.0.conv1.weight"] = torch.zeros(1)
    state["mistaken"] = state.pop("conv1.0.weight")
    save_file(state, tmp_path / "weights.safetensors")
    with pytest.raises(ValueError, match=r"weights\.safetensors does not fit test_resnet") as caught:
        Backbone("test_resnet", checkpoint=tmp_path / "weights.safetensors")
    for part in (
        "1 missing (conv1.0.weight)",
        "1 unexpected (mistaken)",
        "1 of another shape (layer1.0.conv1.weight (1,), expected",
    ):
        assert part in str(caught.value)


def test_starts_at_the_network_of_a_model(tmp_path: Path) -> None:
    recipe = BaselineRecipe.model_validate({"backbone": {"name": "resnet20_preact", "pretrained": False}})
    torch.manual_seed(0)
    model = build_method(recipe, classes=4, samples=16)
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, tmp_path / "weights.safetensors")
    assert len(model.state_dict()) > len(model.backbone.state_dict()), "weights of a head"
    torch.manual_seed(1)
    state = Backbone("resnet20_preact", checkpoint=tmp_path / "weights.safetensors").state_dict()
    torch.testing.assert_close(dict(model.backbone.state_dict()), dict(state), rtol=0, atol=0)


def test_refuses_a_missing_and_an_invalid_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.pth of test_resnet is missing"):
        Backbone("test_resnet", checkpoint=tmp_path / "none.pth")
    for name, content in (
        ("text.safetensors", b"not tensors"),
        ("text.pth", b"not tensors"),
        ("empty.pth", b""),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name} is neither"):
            Backbone("test_resnet", checkpoint=tmp_path / name)


@pytest.mark.parametrize("content", [b"junk", b"a\xc8\x9b\xc8\xc5\xfb\x8e\x852\x88", b"0.", b"N."])
def test_refuses_junk_with_the_name_of_weights(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "weights.pth").write_bytes(content)
    with pytest.raises(ValueError, match=r"weights\.pth is neither a \.safetensors file"):
        Backbone("test_resnet", checkpoint=tmp_path / "weights.pth")


def test_a_failed_seek_in_a_damaged_checkpoint_is_no_missing_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the zip reader of torch does at the end of some damaged files."""
    (tmp_path / "weights.pth").write_bytes(b"PK")
    error = OSError(errno.EINVAL, "Invalid argument")
    monkeypatch.setattr(checkpoint, "load_state_dict", Mock(side_effect=error))
    with pytest.raises(ValueError, match=r"weights\.pth is neither .*Invalid argument"):
        checkpoint.read_state(tmp_path / "weights.pth")


def test_refuses_a_tar_archive_without_extracting_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.load extracts the members of its oldest format to the folder of temporary files."""
    with tarfile.open(tmp_path / "weights.pth", "w") as archive:
        for name in ("storages", "tensors", "pickle"):
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    monkeypatch.setattr(tempfile, "mkdtemp", lambda *_, **__: pytest.fail("a temporary folder was made"))
    with pytest.raises(ValueError, match=r"weights\.pth is neither .* it is a tar archive"):
        Backbone("test_resnet", checkpoint=tmp_path / "weights.pth")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_refuses_a_checkpoint_whose_weights_are_not_finite(tmp_path: Path, value: float) -> None:
    state = Backbone("test_resnet").network.state_dict()
    state = {name: tensor.contiguous() for name, tensor in state.items()}
    key = next(iter(state))
    state[key].view(-1)[0] = value
    save_file(state, tmp_path / "weights.safetensors")
    with pytest.raises(
        ValueError, match=r"weights\.safetensors has values that are not finite in conv1\.0\.weight"
    ):
        Backbone("test_resnet", checkpoint=tmp_path / "weights.safetensors")
    torch.save({"epoch": 3}, tmp_path / "weights.pth")
    with pytest.raises(ValueError, match=r"not a table of weights: 'epoch' is a int"):
        Backbone("test_resnet", checkpoint=tmp_path / "weights.pth")


class _Payload:
    def __reduce__(self) -> tuple:
        return (print, ("code of a checkpoint must not run",))


def test_refuses_a_checkpoint_that_would_run_code(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    torch.save({"conv1.weight": _Payload()}, tmp_path / "weights.pth")
    with pytest.raises(ValueError, match=r"weights-only \.pth"):
        Backbone("test_resnet", checkpoint=tmp_path / "weights.pth")
    assert "must not run" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "resnet5"}, "timm has no network 'resnet5'. Did you mean resnet5"),
        ({"name": "test_resnet", "stages": (5,)}, "has 5 feature maps, 0 to 4"),
        ({"name": "test_resnet", "stages": ()}, "has 5 feature maps"),
        (
            {"name": "test_resnet", "arguments": {"colour": 1}},
            "timm cannot build test_resnet with {'colour': 1}: TypeError",
        ),
        ({"name": "test_resnet", "arguments": {"output_stride": 5}}, "timm cannot build test_resnet"),
        ({"name": "test_resnet", "arguments": {"num_classes": 5}}, "which this project sets"),
        ({"name": "resnet18.none"}, "Invalid pretrained tag"),
    ],
)
def test_refuses_unknown_networks_and_arguments(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        Backbone(**arguments)
    assert message in str(caught.value)


def test_names_weights_that_cannot_be_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> nn.Module:
        raise ConnectionError("no route")

    monkeypatch.setattr(backbone.timm, "create_model", offline)
    with pytest.raises(
        FileNotFoundError, match=r"model\.safetensors of timm/resnet50\.tv_in1k.*`checkpoint`"
    ):
        Backbone("resnet50.tv_in1k", pretrained=True)
