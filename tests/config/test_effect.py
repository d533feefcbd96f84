"""Changes that decide nothing are named with what decides instead; where a value of a recipe comes from."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from pipeline.config import Params, resolve
from pipeline.config.__main__ import shown
from pipeline.config.command import in_full, literal
from pipeline.config.effect import require_effect
from pipeline.runtime.errors import UserError

TEXT = """\
methods:
  gsp:
    method: gsp
    dim: 512
    zero_shot: {weight: 0.1}
    training: {iterations: 900}
  ms:
    method: baseline
    pooling: {name: max}
    training: {iterations: 900}
datasets:
  small:
    recipe:
      backbone: {name: test_resnet, arguments: {output_stride: 8}}
      training: {iterations: 30}
    recipes:
      gsp: {dim: 64, zero_shot: null}
      ms: {pooling: {name: average}, memory: {size: 64}}
  large:
    recipe: {}
    recipes: {gsp: {}, ms: {}}
"""
SMALL, LARGE = ("small", "gsp"), ("large", "gsp")


@pytest.fixture
def committed(tmp_path: Path) -> Path:
    path = tmp_path / "params.yaml"
    path.write_text(TEXT, encoding="utf-8")
    who = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
    for command in (["init", "-q"], ["add", "params.yaml"], [*who, "commit", "-qm", "first"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return path


def edited(path: Path, *pairs: tuple[str, str]) -> Params:
    text = TEXT
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new, 1)
    path.write_text(text, encoding="utf-8")
    return Params(path)


def refused(params: Params, *recipes: tuple[str, str]) -> str:
    with pytest.raises(UserError) as caught:
        require_effect(params, recipes)
    return str(caught.value).replace(str(params.path), "params.yaml")


def test_published_values_that_a_data_set_replaces_are_no_change(committed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require_effect(Params(committed), [SMALL, LARGE, ("small", "ms")])
    assert capsys.readouterr().err == ""


def test_a_replaced_change_is_named_with_its_line_and_what_to_type(committed: Path) -> None:
    said = refused(edited(committed, ("dim: 512", "dim: 128"), ("iterations: 900", "iterations: 40")), SMALL)
    assert "params.yaml:4: methods.gsp.dim = 128 decides nothing in this run: gsp on small takes datasets.small.recipes.gsp.dim = 64" in said
    assert (
        "methods.gsp.training.iterations = 40 decides nothing in this run: gsp on small takes datasets.small.recipe.training.iterations = 30" in said
    )
    assert "-S 'datasets.small.recipes.gsp.dim=128' -S '++datasets.small.recipes.gsp.training.iterations=40'" in said
    assert "git checkout HEAD -- params.yaml" in said


def test_what_is_typed_instead_decides_and_the_vain_change_does_no_harm(committed: Path) -> None:
    params = edited(committed, ("dim: 512", "dim: 128"), ("dim: 64", "dim: 128"))
    require_effect(params, [SMALL])
    assert resolve(params, *SMALL).dim == 128


def test_a_change_that_decides_on_one_data_set_alone_is_said(committed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require_effect(edited(committed, ("dim: 512", "dim: 128")), [SMALL, LARGE])
    said = capsys.readouterr().err
    assert said.startswith("warning: ")
    assert "methods.gsp.dim = 128 does not decide everywhere: gsp on small takes datasets.small.recipes.gsp.dim = 64" in said


@pytest.mark.parametrize(
    ("pair", "recipe", "by", "typed"),
    [
        (
            ("pooling: {name: max}", "pooling: {name: gem, exponent: 2.0}"),
            ("small", "ms"),
            "pooling.exponent = 2.0 decides nothing in this run: ms on small takes datasets.small.recipes.ms.pooling.name = average",
            "-S 'datasets.small.recipes.ms.pooling.name=gem' -S '++datasets.small.recipes.ms.pooling.exponent=2.0'",
        ),
        (
            ("weight: 0.1", "weight: 0.2"),
            SMALL,
            "zero_shot.weight = 0.2 decides nothing in this run: gsp on small takes datasets.small.recipes.gsp.zero_shot = null",
            "-S 'datasets.small.recipes.gsp.zero_shot={weight:0.2}'",
        ),
        (
            ("    pooling: {name: max}", "    pooling: {name: max}\n    memory: null"),
            ("small", "ms"),
            "memory = null decides nothing in this run: ms on small takes datasets.small.recipes.ms.memory = {size:64}",
            "-S 'datasets.small.recipes.ms.memory=null'",
        ),
        (
            ("    dim: 512", "    backbone: {name: bn_inceptoin, arguments: {drop_rate: 0.1}}"),
            SMALL,
            "backbone.arguments.drop_rate = 0.1 decides nothing in this run: gsp on small takes datasets.small.recipe.backbone.name = test_resnet",
            "-S '++datasets.small.recipes.gsp.backbone.name=bn_inceptoin' -S '++datasets.small.recipes.gsp.backbone.arguments.drop_rate=0.1'",
        ),
        (
            ("recipe:\n      backbone: {name: test_resnet, arguments: {output_stride: 8}}", "recipe:\n      dim: 32"),
            SMALL,
            "datasets.small.recipe.dim = 32 decides nothing in this run: gsp on small takes datasets.small.recipes.gsp.dim = 64",
            "-S 'datasets.small.recipes.gsp.dim=32'",
        ),
    ],
    ids=["fields of another pooling", "null in place of a block", "a block in place of null", "arguments of another network", "of all methods"],
)
def test_parts_that_are_replaced_whole(committed: Path, pair: tuple[str, str], recipe: tuple[str, str], by: str, typed: str) -> None:
    said = refused(edited(committed, pair), recipe)
    assert by in said
    assert typed in said


def test_a_new_method_is_no_change_of_one(committed: Path) -> None:
    new = TEXT.replace("methods:\n", "methods:\n  mine: {method: gsp, dim: 32, training: {iterations: 5}}\n").replace(
        "      gsp: {dim: 64", "      mine: {dim: 64}\n      gsp: {dim: 64"
    )
    committed.write_text(new, encoding="utf-8")
    require_effect(Params(committed), [("small", "mine")])


def test_without_a_commit_nothing_is_known_to_be_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(TEXT, encoding="utf-8")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    require_effect(Params(path), [SMALL])
    monkeypatch.setenv("PATH", "")
    require_effect(Params(path), [SMALL])


def test_every_value_is_shown_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(TEXT, encoding="utf-8")
    lines = [line.replace(str(path), "params.yaml").split() for line in shown(Params(path), *SMALL).splitlines()]
    assert ["dim:", "64", "params.yaml:17,", "datasets.small.recipes.gsp"] in lines
    assert ["output_stride:", "8", "params.yaml:14,", "datasets.small.recipe"] in lines
    assert ["zero_shot:", "null", "params.yaml:17,", "datasets.small.recipes.gsp"] in lines
    assert ["iterations:", "30", "params.yaml:15,", "datasets.small.recipe"] in lines
    assert ["pretrained:", "true", "default"] in lines
    assert {line[0].rstrip(":") for line in lines} >= resolve(Params(path), *SMALL).model_dump().keys()


def test_a_remedy_that_names_a_field_says_where_it_stands_and_what_to_type(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(TEXT, encoding="utf-8")
    with pytest.raises(UserError) as caught, in_full(Params(path), *SMALL):
        raise UserError("Too few.", "Set batch.classes=8 or lower, correct backbone.name, or move train.workers and data/x.png.")
    said = str(caught.value).replace(str(path), "params.yaml").splitlines()
    assert said[2:] == [
        "  backbone.name of gsp on small is test_resnet (params.yaml:14, datasets.small.recipe). "
        "Change it with -S 'datasets.small.recipe.backbone.name=...'",
        f"  batch.classes of gsp on small is {resolve(Params(path), *SMALL).batch.classes} (default). "
        "Change it with -S '++datasets.small.recipes.gsp.batch.classes=8'",
    ]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.5, "0.5"), (None, "null"), (True, "true"), ((1, 2), "[1,2]"), ({"a": "x"}, "{a:x}"), ("/a/b-1.pth", "/a/b-1.pth"), ("a b", '"a b"')],
)
def test_a_value_as_it_is_typed(value: Any, expected: str) -> None:
    assert literal(value) == expected
