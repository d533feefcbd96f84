"""A row of a study: its layers, its protocol, and what a small set replaces."""

from pathlib import Path
from typing import Any

import pytest

from tests.params import project, write
from unseen.config.command import field_origins
from unseen.config.definitions import layers_of
from unseen.config.document import Params
from unseen.config.resolve import dataset_settings, resolve
from unseen.config.study_row import is_small
from unseen.experiments.catalogue import with_rows
from unseen.experiments.plan.files import plan
from unseen.runtime.errors import UserError

ROW = "crt-table-8-k1-4"


def params_with(folder: Path, *methods: str, **changes: Any) -> Params:
    return with_rows(
        project(folder, {key.replace("__", "."): value for key, value in changes.items()}), *methods
    )


def test_a_row_has_the_published_layers_and_its_changes(tmp_path: Path) -> None:
    params = params_with(tmp_path, ROW)
    published = {
        "backbone.name": "mit_b1",
        "embedding.prototypes": 4,
        "training.protocol": "published",
        "training.patience": None,
    }
    assert resolve(params, "sop", ROW) == resolve(params, "sop", "crt", published)
    assert (
        layers_of(params, "sop", ROW)
        .origin("embedding.prototypes")
        .startswith("pipeline/recipes/studies/crt.yaml:")
    )


def test_a_row_ignores_changes_of_a_user(tmp_path: Path) -> None:
    changes = {
        "methods": {"crt": {"networks": "shared"}},
        "datasets.cub": {
            "recipe": {"optimizer": {"learning_rate": 0.5}},
            "methods": {"crt": {"diversity_weight": 7.0}},
        },
    }
    (tmp_path / "plain").mkdir()
    changed, plain = params_with(tmp_path, ROW, **changes), params_with(tmp_path / "plain", ROW)
    assert resolve(changed, "cub", "crt") != resolve(plain, "cub", "crt")
    assert resolve(changed, "cub", ROW) == resolve(plain, "cub", ROW)


def test_a_small_set_keeps_network_images_and_schedule(tmp_path: Path) -> None:
    params = params_with(tmp_path, ROW, "irt-table-4-deit-s-snca", "irt-table-4-r50-contr")
    row, method = resolve(params, "parts", ROW), resolve(params, "parts", "crt")
    assert row.embedding.prototypes == 4
    assert (row.backbone, row.input, row.batch, row.schedule) == (
        method.backbone, method.input, method.batch, method.schedule,
    )  # fmt: skip
    assert row.training.protocol == "published"
    transformer = resolve(params, "parts", "irt-table-4-deit-s-snca")
    assert (transformer.backbone.name, transformer.pooling.name) == ("test_vit", "cls")
    assert transformer.backbone.arguments == {"img_size": 56, "patch_size": 8}
    assert resolve(params, "parts", "irt-table-4-r50-contr").backbone == method.backbone


def test_a_small_set_keeps_the_axes_of_a_study(tmp_path: Path) -> None:
    name = "multihead-figure-8-multihead-dim-256"
    assert resolve(params_with(tmp_path, name), "parts", name).dim == 256


@pytest.mark.parametrize(
    ("name", "dataset", "protocol"),
    [
        (ROW, "cub", "published"),
        ("multihead-figure-1-proxy-anchor", "cub", "selected"),
        ("irt-table-6-lambda-1-0", "landmarks", "selected"),
        ("irt-table-6-lambda-1-0", "sop", "published"),
        ("irt-table-2-proxynca", "cub", "refit"),
        ("irt-table-2-proxynca", "parts", "published"),
        ("gsp-table-2-ms-plus-gsp", "cub", "selected"),
    ],
)
def test_protocol_of_a_row(name: str, dataset: str, protocol: str, tmp_path: Path) -> None:
    (known,) = [row for row in _names() if row.startswith(name)][:1]
    assert resolve(params_with(tmp_path, known), dataset, known).training.protocol == protocol


def test_only_sets_with_small_networks_are_small() -> None:
    kinds = ("parts", "tokens", "omniglot", "cifar10", "collage", "cub", "folder", "landmarks")
    assert [kind for kind in kinds if is_small(kind)] == ["parts", "tokens", "omniglot", "cifar10", "collage"]


def test_a_row_of_a_user_keeps_all_its_changes_and_the_method_of_params(tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "mine.yaml").write_text(
        "mine:\n  title: t\n  methods: {a: {like: own, dim: 32}}\n  datasets: [parts]\n"
        "  recipe: {training.iterations: 7}\n  protocol: selected\n",
        encoding="utf-8",
    )
    own = {"method": "baseline", "dim": 8, "loss": {"name": "triplet"}}
    params = write(tmp_path, {"run": {"methods": ["mine-a"]}, "methods": {"own": own}})
    recipe = resolve(with_rows(params), "parts", "mine-a")
    assert (recipe.dim, recipe.loss.name, recipe.training.iterations) == (32, "triplet", 7)
    assert recipe.training.protocol == "selected"


def test_a_data_set_of_a_study_has_its_source_settings(tmp_path: Path) -> None:
    name, row = "cifar10-split-images", "gsp-figure-5-with"
    params = project(
        tmp_path,
        {
            "run.datasets": [name, "cifar10"],
            "run.methods": [row, "ms"],
            "run.sweeps": [],
            "datasets.cifar10": {"source": {"path": "elsewhere"}, "recipe": {"dim": 32}},
        },
    )
    run = plan(params)
    source, ordinary = run.ingest[name][0], run.ingest["cifar10"][0]
    assert source.model_dump() == {"kind": "cifar10", "path": "elsewhere", "split": "images"}
    assert ordinary.model_dump() == {"kind": "cifar10", "path": "elsewhere", "split": "classes"}
    assert run.recipes[name, row].training.protocol == "published"
    assert run.recipes[name, row].pooling.prototypes == 8
    # the layers are those of cifar10, with its change for this split
    protocols = [run.recipes[dataset, "ms"].training.protocol for dataset in (name, "cifar10")]
    assert protocols == ["published", "selected"]
    assert run.recipes[name, "ms"].dim == 32
    assert layers_of(params, name, "ms").origin("dim").endswith("datasets.cifar10.recipe")
    assert run.evaluation(name) == run.evaluation("cifar10")


def test_refuses_a_value_of_a_source_with_the_line_of_the_study(tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "mine.yaml").write_text(
        "mine:\n  title: t\n  methods: {a: {like: ms}}\n  datasets: [parts]\n"
        "  sources:\n    parts:\n      images_per_class: 1\n",
        encoding="utf-8",
    )
    params = write(tmp_path, {"run": {"datasets": ["parts-images-per-class-1"]}})
    with pytest.raises(UserError, match=r"mine.yaml:7: images_per_class: .* got 1"):
        dataset_settings(with_rows(params), "parts-images-per-class-1")


def test_an_error_about_a_row_names_the_file_of_its_study(tmp_path: Path) -> None:
    params = params_with(tmp_path, ROW)
    with pytest.raises(UserError) as raised, field_origins(params, "cub", ROW):
        raise UserError("Too many classes.", "Set batch.classes=8.")
    assert f"Change it in the recipe of the row, study {ROW[:11]} (pipeline/recipes/studies/crt.yaml:" in (
        raised.value.remedy
    )
    assert raised.value.remedy.endswith("): batch.classes: 8")
    # the stages read no studies
    with pytest.raises(UserError) as raised, field_origins(Params(params.path), "cub", ROW):
        raise UserError("Too many classes.", "Set batch.classes=8.")
    assert (raised.value.what, raised.value.remedy) == ("Too many classes.", "Set batch.classes=8.")


def _names() -> list[str]:
    from unseen.experiments.catalogue import entries, studies

    return [entry.method for item in studies().values() for entry in entries(item)]
