"""Descriptors of several scales: equal to the definition, independent of order and workers, and refused
settings."""

import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import ValidationError

from tests.oracles import scales as oracle
from unseen.cluster.export import Worker
from unseen.config.stages import ExportSettings
from unseen.data.embeddings import read
from unseen.data.shard_writer import ShardWriter
from unseen.methods.artifact import LoadedModel, save_recipe, save_weights
from unseen.methods.build import initial_method
from unseen.methods.method import Method
from unseen.methods.settings import Recipe, parse_recipe
from unseen.runtime.errors import UserError
from unseen.training.export.model import FILES, export_model
from unseen.training.export.scales import check_scales, describe, exponent, sides

SCALES = (1.0, 2**-0.5, 0.5)
GEM = {"pooling": {"name": "gem", "exponent": 2.6}, "dim": None}


def recipe(**blocks: Any) -> Recipe:
    small = {"name": "test_resnet", "pretrained": False}
    values = {"method": "baseline", "dim": 8, "backbone": small, "input": {"size": 64, "resize": None}}
    return parse_recipe({**values, **blocks})


def vit(**arguments: Any) -> Recipe:
    return recipe(
        backbone={"name": "test_vit", "pretrained": False, "arguments": {"img_size": 64, **arguments}},
        pooling={"name": "cls"},
        dim=None,
    )


def loaded(settings: Recipe) -> LoadedModel:
    return LoadedModel(initial_method(settings, 3, 12, 0).eval(), settings, "tiny", 0)


def images(count: int = 2, size: int = 64) -> torch.Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(0))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("blocks", "p"),
    [
        ({}, 1.0),
        (GEM, 2.6),
        ({"pooling": {"name": "second_order", "exponent": 4.0}, "dim": None}, 4.0),
        ({**GEM, "dim": 8}, 1.0),  # followed by a linear layer
        ({**GEM, "projection": {"layer_norm": True}}, 1.0),
        ({"pooling": {"name": "max"}, "dim": None}, 1.0),
    ],
    ids=["average, projected", "gem", "second order", "gem, projected", "gem, normalised", "max"],
)
def test_descriptors_equal_the_definition(blocks: dict[str, Any], p: float) -> None:
    method = initial_method(recipe(**blocks), 3, 12, 0).eval()
    assert exponent(method) == pytest.approx(p)
    with torch.no_grad():
        descriptors = describe(method, images(), SCALES).embedding.numpy()
        wide = method.double()

        def embed(image: np.ndarray) -> np.ndarray:
            return np.asarray(wide.embed(torch.from_numpy(image)[None])[0])

        for image, vector in zip(images().double().numpy(), descriptors, strict=True):
            assert (
                np.abs(vector - oracle.descriptor(image, embed, list(SCALES), exponent(method))).max() < 2e-6
            )
    assert np.abs(np.linalg.norm(descriptors, axis=1) - 1).max() < 1e-6


def test_one_scale_equals_the_method_to_the_bit() -> None:
    for blocks in ({}, GEM):
        method = initial_method(recipe(**blocks), 3, 12, 0).eval()
        with torch.no_grad():
            assert torch.equal(describe(method, images(), (1.0,)).embedding, method.embed(images()))


def test_a_single_scale_resizes_the_image() -> None:
    method = initial_method(recipe(), 3, 12, 0).eval()
    with torch.no_grad():
        half_size = torch.nn.functional.avg_pool2d(images(), 2)  # equal to bilinear resizing to half the size
        assert (describe(method, images(), (0.5,)).embedding - method.embed(half_size)).abs().max() < 2e-6


def test_a_large_exponent_does_not_overflow_or_underflow() -> None:
    method = initial_method(recipe(pooling={"name": "gem", "exponent": 30.0}, dim=None), 3, 12, 0).eval()
    with torch.no_grad():
        single = torch.stack([describe(method, images(), (scale,)).embedding for scale in SCALES])
        descriptors = describe(method, images(), SCALES).embedding
    assert torch.isfinite(descriptors).all()
    highest = torch.nn.functional.normalize(single.amax(0), dim=1)
    assert (descriptors - highest).abs().max() < 0.03, "nearly the maximum over scales"


def test_attributes_are_averaged() -> None:
    blocks = {
        "pooling": {"name": "gsp", "prototypes": 4, "initialization_memory": 24},
        "zero_shot": None,
        "method": "gsp",
    }
    method = initial_method(recipe(**blocks), 3, 12, 0).eval()
    with torch.no_grad():
        single = [describe(method, images(), (scale,)).attributes for scale in SCALES]
        attributes = describe(method, images(), SCALES).attributes
    assert attributes is not None
    expected = (
        sum(scale_attributes.double() for scale_attributes in single if scale_attributes is not None) / 3
    )
    assert (attributes - expected).abs().max() < 1e-7
    assert (attributes.sum(1) - 1).abs().max() < 1e-6


@pytest.fixture
def project(tmp_path: Path) -> tuple[Path, Path]:
    """Shards of eight images and a model of GeM descriptors over them."""
    shards, model, generator = tmp_path / "shards", tmp_path / "model", np.random.default_rng(0)
    shards.mkdir()
    with ShardWriter(shards, [f"class-{c}" for c in range(4)], 2**24) as writer:
        for row in range(8):
            octets = io.BytesIO()
            Image.fromarray(generator.integers(0, 256, (70, 80, 3), dtype=np.uint8)).save(octets, "PNG")
            split, label = ("train", row % 2) if row < 4 else ("test", 2 + row % 2)
            writer.add(octets.getvalue(), label, split, f"{row}.png", 80, 70)
        writer.finish({"dataset": "tiny"})
    settings = recipe(**GEM)
    model.mkdir()
    save_recipe(model / "recipe.json", settings, "tiny", 0, 2, 4)
    for seed, name in ((0, "untrained"), (1, "weights"), (2, "last")):
        save_weights(model / f"{name}.safetensors", initial_method(settings, 2, 4, seed))
    return shards, model


def exported(project: tuple[Path, Path], name: str, **settings: Any) -> dict[str, bytes]:
    output = project[0].parent / name
    export_model(*project, output, ExportSettings(batch_size=3, **settings))
    return {file: (output / f"{file}.arrow").read_bytes() for file in FILES}


@pytest.mark.slow
def test_every_file_has_the_scales_in_any_order(project: tuple[Path, Path]) -> None:
    unscaled = exported(project, "plain")
    assert exported(project, "one", scales=(1,)) == unscaled
    orders = [
        exported(project, f"{number}", scales=order)
        for number, order in enumerate(itertools.permutations(SCALES))
    ]
    assert all(order == orders[0] for order in orders)
    for file in FILES:
        rows, single = (read(project[0].parent / name / f"{file}.arrow") for name in ("0", "plain"))
        assert rows.scales == SCALES
        assert single.scales == (1.0,)
        assert np.array_equal(rows.row_id, single.row_id)
        assert 1e-4 < np.abs(rows.embedding - single.embedding).max() < 1


@pytest.mark.slow
def test_a_worker_gives_equal_descriptors_of_several_scales(project: tuple[Path, Path]) -> None:
    exported(project, "one", scales=SCALES)
    rows = read(project[0].parent / "one/test.arrow")
    settings = ExportSettings(batch_size=3, scales=SCALES)
    worker = Worker(settings, 1)
    runs = rows.row_id[:3], rows.row_id[3:]
    descriptors = [worker.embed(project[1], "weights", project[0], run).embedding for run in runs]
    assert np.array_equal(np.concatenate(descriptors), rows.embedding)
    with pytest.raises(UserError, match=r"export\.scales"):
        settings = ExportSettings(batch_size=3, scales=(0.1,))
        Worker(settings, 1).embed(project[1], "weights", project[0], rows.row_id)


@pytest.mark.parametrize(
    ("settings", "scales", "message"),
    [
        (
            vit(dynamic_img_size=False),
            SCALES,
            r"cannot embed images of 64 x 64 at scales 1, 0\.707107, 0\.5: it accepts only that size",
        ),
        (vit(dynamic_img_size=True), SCALES, r"at scale 0\.707107, 45 x 45: .*divisible by patch size"),
        (
            recipe(),
            (1.0, 0.4),
            r"at scale 0\.4: they are 25 pixels wide, and a position of its last map covers 32",
        ),
        (recipe(), (1.0, 0.001), "they are 0 pixels wide"),
        (recipe(), (1.0, 0.999, 0.99), r"0\.999 and 0\.99 both resize images of 64 x 64 to 63 x 63"),
        (recipe(pooling={"name": "gsop", "attention_dim": 4}), (2.0, 1.0), r"at scale 2, 128 x 128: "),
        (
            recipe(backbone={"name": "token_embedding", "pretrained": False}, pooling={"name": "average"}),
            (1.0, 0.5),
            "indices of tokens, which cannot be interpolated",
        ),
    ],
    ids=["fixed size", "patches", "stride", "nothing left", "same size", "fixed positions", "tokens"],
)
def test_refuses_scales_that_the_model_cannot_process(
    settings: Recipe, scales: tuple[float, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        check_scales(loaded(settings), scales)
    assert "Remove export.scales" in caught.value.remedy
    check_scales(loaded(settings), (1.0,))


def test_a_refused_export_writes_no_file(project: tuple[Path, Path]) -> None:
    with pytest.raises(UserError, match=r"export\.scales"):
        exported(project, "refused", scales=(1.0, 0.1))
    assert not (project[0].parent / "refused").exists()


def test_an_interpolating_transformer_accepts_multiples_of_its_patches() -> None:
    model = loaded(vit(dynamic_img_size=True))
    check_scales(model, (1.5, 1.0, 0.5))
    assert sides(64, (1.5, 1.0, 0.5)) == [96, 64, 32]
    method: Method = model.method
    with torch.no_grad():
        assert describe(method, images(), (1.5, 1.0, 0.5)).embedding.shape == (2, method.dim)


def test_refuses_invalid_scales() -> None:
    assert ExportSettings().scales == ExportSettings(scales=(1,)).scales == (1.0,)
    assert ExportSettings(scales=(0.5, 1, 0.7071)).scales == (1.0, 0.7071, 0.5)
    for scales in ((), (1.0, 1), (0.5, -0.5), (0.0,), (float("inf"),), (float("nan"),), 1.0):
        with pytest.raises(ValidationError, match="scales"):
            ExportSettings(scales=scales)
