"""Export of a small real network: the files, their values, and evaluation mode in float32."""

import contextlib
import io
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.resolved import write_resolved
from unseen.cluster import connection as connection_module
from unseen.cluster import export as cluster_export
from unseen.cluster.connection import RUN_CLUSTER, Cluster
from unseen.cluster.export import embedding_workers, run_export
from unseen.config.stages import ExportSettings
from unseen.data.embeddings import read
from unseen.data.loader import EvalLoader, normalize
from unseen.data.positions import read as read_positions
from unseen.data.shard_writer import ShardWriter
from unseen.data.shards import Shards
from unseen.methods.artifact import load_method, save_recipe, save_weights
from unseen.methods.build import initial_method
from unseen.methods.method import Method
from unseen.methods.settings import Recipe, parse_recipe
from unseen.runtime.errors import UserError
from unseen.stages import export as stage
from unseen.stages.export import run
from unseen.training.export import model as module
from unseen.training.export.features import embeds_features, load_network
from unseen.training.export.model import FILES, Embed, Embedded, LocalEmbedder, embed_images, export_model

CPU = torch.device("cpu")
TRAIN, TEST = 12, 11
SETTINGS = ExportSettings(workers=1, batch_size=4)


def recipe(method: str = "baseline") -> Recipe:
    blocks = {
        "gsp": {"pooling": {"name": "gsp", "prototypes": 4, "initialization_memory": 24}, "zero_shot": None}
    }
    return parse_recipe(
        {
            "method": method,
            "dim": 8,
            "backbone": {"name": "test_resnet", "pretrained": False, "batch_norm": "batch"},
            "input": {"size": 32, "resize": 36},
            "training": {"precision": "bfloat16"},
            **blocks.get(method, {}),
        }
    )


def save_model(model: Path, settings: Recipe) -> None:
    """Weights of three seeds as the untrained, the selected and the last weights of a training."""
    model.mkdir(parents=True)
    save_recipe(model / "recipe.json", settings, "tiny", 0, 3, TRAIN)
    for seed, name in ((0, "untrained"), (1, "weights"), (2, "last")):
        save_weights(model / f"{name}.safetensors", initial_method(settings, 3, TRAIN, seed))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twelve train images, eleven test images, every third of them no query, and a model whose last weights
    differ from the selected ones."""
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("export: {workers: 1}\n")
    for method in ("baseline", "gsp"):
        write_resolved(tmp_path, "export", "tiny", method, batch_size=4, scales=[1.0])
    shards = Path("data/shards/tiny")
    shards.mkdir(parents=True)
    generator = np.random.default_rng(0)
    with ShardWriter(shards, [f"class-{c}" for c in range(6)], 2**24) as writer:
        for row in range(TRAIN + TEST):
            octets = io.BytesIO()
            Image.fromarray(generator.integers(0, 256, (40 + row % 3, 44, 3), dtype=np.uint8)).save(
                octets, "JPEG"
            )
            split, label = ("train", row % 3) if row < TRAIN else ("test", 3 + row % 3)
            writer.add(octets.getvalue(), label, split, f"{row}.jpg", 44, 40 + row % 3, is_query=row % 3 > 0)
        writer.finish({"dataset": "tiny"})
    save_model(Path("data/models/tiny/baseline/0"), recipe())
    return tmp_path


def directory(project: Path) -> Path:
    return project / "data/embeddings/tiny/baseline/0"


@pytest.mark.slow
def test_writes_files_of_their_rows_and_networks(project: Path) -> None:
    run("tiny", "baseline", 0)
    assert sorted(path.name for path in directory(project).iterdir()) == sorted(
        f"{name}.arrow" for name in FILES
    )
    shards, model = Shards(project / "data/shards/tiny"), project / "data/models/tiny/baseline/0"
    for name, (network, split) in FILES.items():
        rows = read(directory(project) / f"{name}.arrow")
        assert rows.row_id.tolist() == shards.rows(split).tolist()
        assert rows.label.tolist() == shards.labels[rows.row_id].tolist()
        assert rows.is_query.tolist() == [row % 3 > 0 for row in rows.row_id]
        assert rows.is_gallery.all()
        assert rows.training_protocol == "selected"
        method = load_network(model, network).method
        for images, ids in EvalLoader(shards, rows.row_id, recipe().input, 1):
            with torch.no_grad():
                expected = method.embed(normalize(images, *method.statistics(recipe().input)))[0].numpy()
            assert np.abs(expected - rows.embedding[rows.row_id == int(ids)]).max() < 2e-6
    selected, last, untrained = (
        read(directory(project) / f"{name}.arrow").embedding
        for name in ("test", "test-last", "test-untrained")
    )
    assert np.abs(selected - last).max() > 0.01
    assert np.abs(selected - untrained).max() > 0.01
    positions = read_positions(project / "data/positions/tiny/baseline/0.arrow")
    assert {each.row_id for each in positions.maps} <= set(shards.rows("test"))
    assert len({each.row_id for each in positions.maps if each.reference is None}) == TEST


@pytest.mark.slow
def test_the_best_iterate_on_test_has_its_own_file(project: Path) -> None:
    model = project / "data/models/tiny/baseline/0"
    shutil.copyfile(model / "last.safetensors", model / "best_on_test.safetensors")
    run("tiny", "baseline", 0)
    best, last = (read(directory(project) / f"{name}.arrow") for name in ("test-best", "test-last"))
    assert np.array_equal(best.embedding, last.embedding)
    assert best.row_id.tolist() == last.row_id.tolist()


@pytest.mark.slow
def test_embeddings_name_the_protocol_of_the_training(project: Path) -> None:
    settings = recipe().model_dump(mode="json")
    settings["training"]["protocol"] = "published"
    model = project / "data/models/tiny/baseline/0"
    save_recipe(model / "recipe.json", parse_recipe(settings), "tiny", 0, 3, TRAIN)
    run("tiny", "baseline", 0)
    assert {read(directory(project) / f"{name}.arrow").training_protocol for name in FILES} == {"published"}


def test_the_stage_embeds_at_the_scales_of_its_settings(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[ExportSettings] = []
    monkeypatch.setattr(stage, "run_export", lambda *call: calls.append(call[-1]))
    monkeypatch.setattr(stage, "export_positions", lambda *_: None)
    write_resolved(project, "export", "tiny", "baseline", batch_size=3, scales=[1.0, 0.5])
    run("tiny", "baseline", 0)
    assert calls == [ExportSettings(workers=1, batch_size=3, scales=(1.0, 0.5))]


@pytest.mark.slow
def test_attributes_of_test_images_equal_those_of_the_method(project: Path) -> None:
    model = project / "data/models/tiny/gsp/0"
    save_model(model, recipe("gsp"))
    run("tiny", "gsp", 0)
    shards = Shards(project / "data/shards/tiny")
    for name, (network, split) in FILES.items():
        rows = read(project / f"data/embeddings/tiny/gsp/0/{name}.arrow")
        if split == "train" or network == "features":
            assert rows.attributes is None
            continue
        assert rows.attributes is not None
        assert rows.attributes.shape == (TEST, 4)
        np.testing.assert_allclose(rows.attributes.sum(axis=1), 1, atol=1e-5)
        method = load_network(model, network).method
        images, _ = next(iter(EvalLoader(shards, rows.row_id, recipe().input, TEST)))
        with torch.no_grad():
            expected = method.describe(normalize(images, *method.statistics(recipe().input)))
        assert expected.attributes is not None
        np.testing.assert_allclose(rows.attributes, expected.attributes.numpy(), atol=2e-5)


FEATURES_OF = {
    "projection": {"method": "baseline", "dim": 8},
    "layer norm": {"method": "baseline", "dim": None, "projection": {"layer_norm": True}},
    "generalized mean": {"method": "baseline", "dim": None, "pooling": {"name": "gem"}},
    "generalized sum": {"method": "gsp", "dim": None, "pooling": {"name": "gsp", "prototypes": 4}},
    "coded residual": {"method": "crt"},
    "two maps": {"method": "multihead", "dim": 8, "heads": "both"},
    "the average": {"method": "baseline", "dim": None},
    "class token": {"method": "irt", "dim": None, "memory": None},
    "projected class token": {"method": "irt", "dim": 8, "memory": None},
}
WITHOUT_HEAD = ("the average", "class token")


@pytest.mark.parametrize("head", FEATURES_OF)
def test_features_are_the_mean_of_the_last_map_or_the_class_token(tmp_path: Path, head: str) -> None:
    name = "test_vit" if "token" in head else "test_resnet"
    size = 160 if "token" in head else 32
    settings = parse_recipe(
        {"backbone": {"name": name, "pretrained": False}, "input": {"size": size, "resize": size}}
        | (
            {"backbone": {"name": name, "pretrained": False, "stages": [-2, -1]}}
            if head == "two maps"
            else {}
        )
        | FEATURES_OF[head]
    )
    save_model(tmp_path / "model", settings)
    loaded = load_network(tmp_path / "model", "features")
    images = torch.rand(3, 3, size, size, generator=torch.Generator().manual_seed(0))
    backbone = load_method(tmp_path / "model", "untrained").method.backbone
    with torch.no_grad():
        features, vectors = backbone(images), loaded.method.embed(images)
        start = load_method(tmp_path / "model", "untrained").method.embed(images)
    expected = features.cls if "token" in head else features.maps[-1].mean(dim=(2, 3))
    assert expected is not None
    expected = torch.nn.functional.normalize(expected, dim=1)
    torch.testing.assert_close(vectors, expected, atol=1e-6, rtol=0)
    assert embeds_features(tmp_path / "model") == (head in WITHOUT_HEAD)
    if head in WITHOUT_HEAD:
        assert torch.equal(vectors, start)


def test_features_of_a_method_without_a_head_are_not_embedded_again(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = project / "data/models/tiny/average/0"
    save_model(model, parse_recipe(recipe().model_dump(mode="json") | {"dim": None}))
    labels: list[str] = []

    def embed(_model: Path, _network: str, _shards: Path, rows: np.ndarray, label: str) -> Embedded:
        labels.append(label)
        return Embedded(np.eye(len(rows), dtype=np.float32), None)

    export_model(Path("data/shards/tiny"), model, Path("out"), SETTINGS, embed)
    assert labels == [f"export: {name}" for name in FILES if name != "test-features"]
    assert Path("out/test-features.arrow").read_bytes() == Path("out/test-untrained.arrow").read_bytes()


@pytest.mark.slow
def test_a_second_export_writes_equal_bytes(project: Path) -> None:
    contents = []
    for _ in range(2):
        run("tiny", "baseline", 0)
        contents.append({path.name: path.read_bytes() for path in directory(project).iterdir()})
    assert contents[0] == contents[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("equal", "embedded"),
    [
        ((), ["test", "train", "test-last", "test-untrained", "test-features"]),
        (("last", "weights"), ["test", "train", "test-untrained", "test-features"]),
        (("untrained", "last"), ["test", "train", "test-last", "test-features"]),
        (
            ("untrained", "last", "weights"),
            ["test", "train", "test-features"],
        ),  # an untrained network, as irt_o
    ],
)
def test_each_split_is_embedded_once_with_equal_weights(
    project: Path, monkeypatch: pytest.MonkeyPatch, equal: tuple[str, ...], embedded: list[str]
) -> None:
    """The files equal those of an export that embeds every split with every file of weights."""
    source = project / "data/models/tiny/baseline/0"
    for name in equal[:-1]:
        shutil.copyfile(source / f"{equal[-1]}.safetensors", source / f"{name}.safetensors")
    names: list[str] = []
    embed_images = module.embed_images

    def counted(
        method: Method, loader: EvalLoader, device: torch.device, label: str, scales: tuple[float, ...]
    ) -> Embedded:
        names.append(label.removeprefix("export: "))
        return embed_images(method, loader, device, label, scales)

    monkeypatch.setattr(module, "embed_images", counted)
    export_model(Path("data/shards/tiny"), source, Path("once"), SETTINGS)
    assert names == embedded
    names.clear()
    monkeypatch.setattr(module, "weights_digest", lambda _, weights: weights)
    export_model(Path("data/shards/tiny"), source, Path("each"), SETTINGS)
    assert names == list(FILES)
    for name in FILES:
        assert Path(f"once/{name}.arrow").read_bytes() == Path(f"each/{name}.arrow").read_bytes()


def test_export_uses_float32_and_evaluation_mode_after_any_training(project: Path) -> None:
    shards = Shards(project / "data/shards/tiny")
    method = load_method(project / "data/models/tiny/baseline/0").method.train()
    kinds: set[torch.dtype] = set()
    handles = [
        module.register_forward_hook(lambda _m, _i, out: kinds.add(out.dtype))
        for module in method.modules()
        if isinstance(module, torch.nn.Conv2d)
    ]
    state_before = {name: value.clone() for name, value in method.state_dict().items()}
    rows = shards.rows("test")
    embeddings = embed_images(method, EvalLoader(shards, rows, recipe().input, 5), CPU).embedding
    for handle in handles:
        handle.remove()
    assert kinds == {torch.float32}
    assert embeddings.dtype == np.float32
    # batch norm statistics did not change
    assert all(torch.equal(value, state_before[name]) for name, value in method.state_dict().items())
    assert (
        np.abs(
            embeddings - embed_images(method, EvalLoader(shards, rows, recipe().input, 64), CPU).embedding
        ).max()
        < 2e-6
    )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_has_the_embeddings_of_the_cpu(project: Path) -> None:
    shards = Shards(project / "data/shards/tiny")
    loaded = load_method(project / "data/models/tiny/baseline/0")
    rows = shards.rows("test")
    loader = EvalLoader(shards, rows, loaded.recipe.input, 5)
    assert len(loader) > 2  # batches, of which the last is smaller
    expected = embed_images(loaded.method, loader, CPU).embedding
    on_gpu, again = (embed_images(loaded.method, loader, torch.device("cuda")).embedding for _ in range(2))
    np.testing.assert_allclose(on_gpu, expected, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(on_gpu, again)


def test_precision_settings_are_restored(project: Path) -> None:
    shards = Shards(project / "data/shards/tiny")
    method = load_method(project / "data/models/tiny/baseline/0").method
    precision_before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        embed_images(method, EvalLoader(shards, shards.rows("test"), recipe().input, 64), CPU)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(precision_before)


@pytest.mark.slow
def test_refuses_a_diverged_model_and_writes_no_file(project: Path) -> None:
    model = project / "data/models/tiny/baseline/0"
    method = initial_method(recipe(), 3, TRAIN, 1)
    for parameter in method.parameters():
        torch.nn.init.constant_(parameter, float("nan"))
    save_weights(model / "last.safetensors", method)
    with pytest.raises(
        UserError,
        match=rf"baseline/0, last: the embedding of row id {TRAIN} has norm nan.*{TEST} of {TEST} rows",
    ):
        run("tiny", "baseline", 0)
    assert not directory(project).exists()
    assert not list(directory(project).parent.iterdir())


@pytest.mark.slow
def test_names_a_missing_model(project: Path) -> None:
    (project / "data/models/tiny/baseline/0/last.safetensors").unlink()
    with pytest.raises(UserError, match=r"last\.safetensors is missing"):
        run("tiny", "baseline", 0)
    assert not directory(project).exists()


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.usefixtures("ray_cluster")
def test_several_workers_write_the_same_bytes(project: Path) -> None:
    shards, model = Path("data/shards/tiny"), Path("data/models/tiny/gsp/0")
    save_model(model, recipe("gsp"))
    run_export(shards, model, Path("out-1"), SETTINGS)
    settings = ExportSettings(workers=2, batch_size=4)
    with embedding_workers(settings, 1) as embed:
        export_model(shards, model, Path("out-2"), settings, embed)
        (model / "last.safetensors").unlink()
        with pytest.raises(UserError, match=r"last\.safetensors is missing"):
            export_model(shards, model, Path("out-3"), settings, embed)
    for name in FILES:
        assert Path(f"out-1/{name}.arrow").read_bytes() == Path(f"out-2/{name}.arrow").read_bytes()
    assert not Path("out-3").exists()


@pytest.mark.slow
def test_several_workers_embed_instead_of_the_stage(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    @contextlib.contextmanager
    def workers(settings: ExportSettings, threads: int) -> Iterator[Embed]:
        local_embedder = LocalEmbedder(settings, 1)

        def embed(*arguments: Any) -> Embedded:
            calls.append(arguments[-1])
            return local_embedder(*arguments)

        yield embed

    monkeypatch.setattr(cluster_export, "embedding_workers", workers)
    shards, model = Path("data/shards/tiny"), Path("data/models/tiny/baseline/0")
    run_export(shards, model, Path("out-1"), SETTINGS)
    assert calls == []
    run_export(shards, model, Path("out-2"), ExportSettings(workers=2, batch_size=4))
    assert calls == [f"export: {name}" for name in FILES]
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    run_export(shards, model, Path("out-3"), SETTINGS)
    assert calls == 2 * [f"export: {name}" for name in FILES]
    for name in ("out-2", "out-3"):
        assert Path(name, "test.arrow").read_bytes() == Path("out-1/test.arrow").read_bytes()


def test_one_worker_beside_other_stages_embeds_on_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with parallel stages on a machine with two GPUs."""
    claims: list[tuple[Any, ...]] = []
    resources: list[dict[str, float | None]] = []

    @contextlib.contextmanager
    def connected(*_: object, **__: object) -> Iterator[Cluster]:
        yield Cluster(private=True, name="this machine", cpus=8, gpus=2, shared=True)

    def remote(**of_actor: float | None) -> Any:
        resources.append(of_actor)
        return lambda _: SimpleNamespace(remote=lambda *_: None)

    monkeypatch.setattr(cluster_export, "connection", connected)
    monkeypatch.setattr(connection_module, "_wait_for", lambda *arguments: claims.append(arguments[1:4]))
    monkeypatch.setattr("ray.remote", remote)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with cluster_export.embedder(SETTINGS, 1) as embed:
        assert isinstance(embed, LocalEmbedder)
    monkeypatch.setenv(RUN_CLUSTER, "127.0.0.1:6379")
    with cluster_export.embedder(SETTINGS, 1):
        assert claims == [(1, {"CPU": 1.0, "GPU": 1.0}, math.inf)]
    assert resources == [{"num_cpus": 1.0, "num_gpus": 1.0, "label_selector": None}]


def test_a_model_is_embedded_with_the_threads_of_its_recipe(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another number of threads, products round differently."""
    assert recipe().training.threads == 2
    numbers = []

    def embed_images(*_: Any) -> Embedded:
        numbers.append(torch.get_num_threads())
        return Embedded(np.zeros((0, 8), np.float32), None)

    monkeypatch.setattr(module, "embed_images", embed_images)
    model, shards = project / "data/models/tiny/baseline/0", project / "data/shards/tiny"
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        LocalEmbedder(SETTINGS, 1)(model, "weights", shards, np.arange(2))
        assert [*numbers, torch.get_num_threads()] == [2, 3]
    finally:
        torch.set_num_threads(threads)
