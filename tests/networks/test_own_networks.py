"""Networks that timm lacks: their outputs, their maps, and the sources of their weights."""

from pathlib import Path
from urllib.error import URLError

import huggingface_hub
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.oracles import networks, published
from unseen.networks import googlenet
from unseen.networks.backbone import PROJECT_NETWORKS, Backbone
from unseen.networks.mix_transformer import DEPTHS
from unseen.networks.resnet20 import PreactivationBottleneck


def random_weights(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, Tensor]:
    """Random float64 weights that keep the scale of activations: fan-in scaled, norms about one."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, shape in shapes.items():
        value = torch.randn(shape, generator=generator, dtype=torch.float64)
        if "running_var" in name or (name.endswith("weight") and ("norm" in name or "_bn." in name)):
            state[name] = 1 + 0.2 * value.tanh()
        else:
            state[name] = value * (1.5 / max(1, value[0].numel()) ** 0.5 if name.endswith("weight") else 0.1)
    return state


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size", "shapes"),
    [
        ("googlenet", 224, [(64, 112), (192, 56), (480, 28), (832, 14), (1024, 7)]),
        ("googlenet", 227, [(64, 114), (192, 57), (480, 28), (832, 14), (1024, 7)]),
        ("bn_inception", 224, [(64, 112), (192, 56), (320, 28), (608, 14), (1024, 7)]),
        ("bn_inception", 227, [(64, 114), (192, 57), (320, 28), (608, 14), (1024, 7)]),
        ("mit_b1", 224, [(64, 56), (128, 28), (320, 14), (512, 7)]),
        ("mit_b2", 227, [(64, 57), (128, 29), (320, 15), (512, 8)]),
        ("resnet20_preact", 64, [(64, 64), (128, 32), (256, 16)]),
    ],
)
def test_maps_of_every_stage(name: str, size: int, shapes: list[tuple[int, int]]) -> None:
    with torch.device("meta"):
        network = Backbone(name, stages=tuple(range(len(shapes))))
        features = network(torch.zeros(2, 3, size, size))
        assert [tuple(map.shape) for map in features.maps] == [
            (2, channels, side, side) for channels, side in shapes
        ]
        assert network.channels == tuple(channels for channels, _ in shapes)
        assert (features.cls, network.cls_channels, network.input_size) == (None, None, None)
        with pytest.raises(ValueError, match=f"{name} has {len(shapes)} feature maps"):
            Backbone(name, stages=(len(shapes),))


# one map of tokens; tests/networks/test_token_embedding.py tests it
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PROJECT_NETWORKS.keys() - {"token_embedding"}))
@pytest.mark.parametrize("stages", [(-1,), (-2, 0), (0,)])
def test_every_kept_parameter_has_a_gradient(name: str, stages: tuple[int, ...]) -> None:
    arguments = {"drop_path_rate": 0.0} if name.startswith("mit") else {}
    network = Backbone(name, stages=stages, arguments=arguments)
    sum(map.square().sum() for map in network(torch.randn(2, 3, 64, 64)).maps).backward()
    assert [key for key, parameter in network.named_parameters() if parameter.grad is None] == []


@pytest.mark.slow
def test_bn_inception_equals_its_definition(tmp_path: Path) -> None:
    state = random_weights(published.bn_inception())
    torch.save(state, tmp_path / "weights.pth")
    network = Backbone(
        "bn_inception", checkpoint=tmp_path / "weights.pth", stages=(0, 1, 2, 3, 4), batch_norm="frozen"
    ).double()
    network.network.load_state_dict(
        {key: value.reshape(value.shape[-1:]) if "_bn." in key else value for key, value in state.items()},
        strict=False,
    )
    images = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    for map, expected in zip(network(images).maps, networks.bn_inception(state, images), strict=True):
        torch.testing.assert_close(map, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_bn_inception_refuses_a_map_that_it_cannot_halve() -> None:
    with (
        torch.device("meta"),
        pytest.raises(ValueError, match="cannot halve its 15 x 15 map: use images of 224, 227 or 256 px"),
    ):
        Backbone("bn_inception")(torch.zeros(1, 3, 240, 240))


@pytest.mark.slow
@pytest.mark.parametrize("size", [64, 75])
def test_mix_transformer_equals_its_definition(tmp_path: Path, size: int) -> None:
    state = random_weights(published.mit_nvidia(DEPTHS["b1"]))
    torch.save(state, tmp_path / "mit_b1.pth")
    network = Backbone("mit_b1", checkpoint=tmp_path / "mit_b1.pth", stages=(0, 1, 2, 3)).double().eval()
    # the float32 rounding of the checkpoint
    state = {key: value.float().double() for key, value in state.items()}
    images = torch.randn(2, 3, size, size, dtype=torch.float64)
    for map, expected in zip(
        network(images).maps, networks.mix_transformer(state, images, DEPTHS["b1"]), strict=True
    ):
        torch.testing.assert_close(map, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_loads_weights_saved_from_the_network(tmp_path: Path) -> None:
    for name in PROJECT_NETWORKS:
        source = Backbone(name)
        state = {key: value.contiguous() for key, value in source.network.state_dict().items()}
        save_file(state, tmp_path / f"{name}.safetensors")
        loaded = Backbone(name, checkpoint=tmp_path / f"{name}.safetensors").network.state_dict()
        assert all(torch.equal(value, loaded[key]) for key, value in source.network.state_dict().items()), (
            name
        )


@pytest.mark.slow
def test_googlenet_equals_that_of_torchvision() -> None:
    """torchvision converts ImageNet-normalised pixels to the statistics of its weights. The backbone names
    those statistics instead."""
    torch.manual_seed(0)
    reference = googlenet.torchvision.models.googlenet(
        weights=None, aux_logits=False, init_weights=False, transform_input=True
    ).eval()
    backbone = Backbone("googlenet").eval()
    backbone.network.load_state_dict(
        {key: value for key, value in reference.state_dict().items() if not key.startswith("fc.")}
    )
    maps: list[Tensor] = []
    reference.inception5b.register_forward_hook(lambda *call: maps.append(call[2]))
    pixels = torch.rand(2, 3, 96, 96)
    imagenet, renormalised = (
        (pixels - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
        for mean, std in (((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), (backbone.mean, backbone.std))
    )
    with torch.no_grad():
        reference(imagenet)
        torch.testing.assert_close(backbone(renormalised).maps[0], maps[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("width", "out", "stride", "project"), [(8, 8, 1, False), (8, 12, 2, True)])
def test_a_preactivation_bottleneck_equals_its_formula(
    width: int, out: int, stride: int, project: bool
) -> None:
    block = PreactivationBottleneck(width, out // 2, out, stride, project).double()
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(3, width, 6, 6, dtype=torch.float64)
    torch.testing.assert_close(
        block(x), networks.preactivation_bottleneck(dict(block.state_dict()), x, stride)
    )


def test_resnet20_has_twenty_layers_and_activates_its_last_map() -> None:
    network = Backbone("resnet20_preact")
    on_the_path = [
        name
        for name, _ in network.named_parameters()
        if "shortcut" not in name and name.endswith("weight") and _.ndim == 4
    ]
    assert len(on_the_path) == 1 + 3 * 2 * 3  # and the classifier
    assert float(network(torch.randn(2, 3, 64, 64)).maps[0].detach().min()) == 0


@pytest.mark.slow
def test_layers_are_ordered_from_the_stem_to_the_last_block() -> None:
    expected = {
        "googlenet": 3 + 9,
        "bn_inception": 3 + 10,
        "mit_b1": 4 + 8,
        "mit_b2": 4 + 16,
        "resnet20_preact": 1 + 6 + 1,
    }
    for name, count in expected.items():
        with torch.device("meta"):
            network = Backbone(name)
        layers, names = (
            network.layers(),
            {id(parameter): key for key, parameter in network.network.named_parameters()},
        )
        assert len(layers) == count
        assert sorted(names[id(p)] for layer in layers for p in layer) == sorted(names.values())
        first, last = ({names[id(p)] for p in layers[index]} for index in (0, -1))
        assert first <= {
            key for key in names.values() if key.startswith(("conv1", "stages.0.patch_embeddings", "stem"))
        }
        assert last <= {
            key
            for key in names.values()
            if key.startswith(("inception5b", "inception_5b", "stages.3", "final"))
        }
    with torch.device("meta"):
        network = Backbone("mit_b2")
    names = {id(parameter): key for key, parameter in network.network.named_parameters()}
    # the closing norm has the rate of the last block
    assert {names[id(p)].rsplit(".", 2)[0] for p in network.layers()[-1]} > {"stages.3"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "bn_inception",
            r"download bn_inception-52deb4733\.pth from http://data\.lip6\.fr/.* and set it as `checkpoint`",
        ),
        (
            "resnet20_preact",
            r"resnet20_preact has no published weights: train it from scratch with `pretrained: false`",
        ),
        (
            "googlenet",
            r"googlenet could not be fetched \(URLError\): googlenet-1378be20\.pth of https://download\.pytorch\.org.*`checkpoint`",
        ),
        (
            "mit_b2",
            r"mit_b2 could not be fetched \(ConnectionError\): pytorch_model\.bin of https://huggingface\.co/nvidia/mit-b2.*`checkpoint`",
        ),
    ],
)
def test_names_weights_that_cannot_be_downloaded(
    monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    def no_page(*_: object, **__: object) -> dict:
        raise URLError("no route")

    def no_hub(*_: object, **__: object) -> str:
        raise ConnectionError("no route")

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", no_page)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", no_hub)
    with pytest.raises(FileNotFoundError, match=message):
        Backbone(name, pretrained=True)


@pytest.mark.slow
def test_loads_weights_that_a_library_downloads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    state = {key: value.float() for key, value in random_weights(published.mit_nvidia(DEPTHS["b1"])).items()}
    torch.save(
        {
            name: state[source][rows]
            for name, (source, rows) in published.mit_hugging_face(DEPTHS["b1"]).items()
        },
        tmp_path / "fetched.bin",
    )
    requests: list[tuple] = []
    monkeypatch.setattr(
        huggingface_hub,
        "hf_hub_download",
        lambda *file: requests.append(file) or str(tmp_path / "fetched.bin"),
    )
    network = Backbone("mit_b1", pretrained=True)
    assert requests == [("nvidia/mit-b1", "pytorch_model.bin")]
    assert torch.equal(
        network.network.get_parameter("stages.0.patch_embeddings.proj.weight"),
        state["patch_embed1.proj.weight"],
    )

    reference = googlenet.torchvision.models.googlenet(
        weights=None, aux_logits=True, init_weights=False
    ).state_dict()
    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", lambda url, **_: reference)
    network = Backbone("googlenet", pretrained=True)
    assert torch.equal(
        network.network.get_parameter("inception5b.branch1.conv.weight"),
        reference["inception5b.branch1.conv.weight"],
    )


@pytest.mark.parametrize(
    ("name", "arguments"), [("bn_inception", {"img_size": 224}), ("mit_b1", {"drop_path": 0.1})]
)
def test_refuses_an_argument_that_the_network_lacks(name: str, arguments: dict) -> None:
    with pytest.raises(
        ValueError, match=rf"this project cannot build {name} with .*unexpected keyword argument"
    ):
        Backbone(name, arguments=arguments)


def test_suggests_a_similar_name() -> None:
    with pytest.raises(ValueError, match="Did you mean bn_inception"):
        Backbone("bninception")


def test_the_network_of_cifar_starts_glorot_uniform() -> None:
    """The first standard deviation is measured in the released code of GSP. Variance 2 / (in + out)."""
    torch.manual_seed(0)
    network = Backbone("resnet20_preact").network
    convolutions = [module for module in network.modules() if isinstance(module, torch.nn.Conv2d)]
    stds = [float(convolution.weight.detach().std()) for convolution in convolutions]
    assert stds[0] == pytest.approx(0.107, rel=0.1)
    for convolution, std in zip(convolutions, stds, strict=True):
        weight = convolution.weight.detach()
        fans = (weight.shape[0] + weight.shape[1]) * weight[0, 0].numel()
        assert std == pytest.approx((2 / fans) ** 0.5, rel=0.12)
        assert float(weight.abs().max()) <= (6 / fans) ** 0.5
