"""The documents against the code: every part, recipe and data set has its row, every row its part, and every command resolves to recipes."""

import json
import re
import shlex
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest
from dvc.utils.hydra import apply_overrides
from ruamel.yaml import YAML

from pipeline.config import EvaluateSettings, Params, RunSettings, dataset_settings, resolve, settings
from pipeline.config.losses import Loss
from pipeline.config.poolings import AttributePooling, Pooling
from pipeline.config.strict import Strict
from pipeline.ingest.releases import PUBLISHED
from pipeline.methods.build import initial_method
from pipeline.models.backbone import OWN

ROOT = Path(__file__).resolve().parents[2]
PARAMS = Params(ROOT / "params.yaml")
DOCUMENT = YAML(typ="safe").load(PARAMS.path.read_text(encoding="utf-8"))
README, LIBRARY = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/library.md"))
Row = list[str]


def rows(text: str, heading: str) -> list[Row]:
    """The cells of the first table below a heading, without its head."""
    below = text[text.index(f"## {heading}") :].splitlines()[1:]
    start = next(number for number, line in enumerate(below) if line.startswith("|"))
    table: list[Row] = []
    for line in below[start:]:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split("|")])
    return table[2:]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def only(cell: str) -> str:
    """The one name that a cell quotes."""
    (name,) = quoted(cell)
    return name


def names(*unions: Any) -> list[str]:
    """`name` of every member of annotated unions, which may be nested."""
    found: list[str] = []
    for union in unions:
        if isinstance(union, type) and issubclass(union, Strict):
            found.append(union.model_fields["name"].default)
        else:
            found += names(*(part for part in get_args(union) if get_args(part) or (isinstance(part, type) and issubclass(part, Strict))))
    return list(dict.fromkeys(found))


@pytest.mark.parametrize(
    ("heading", "known"),
    [("Losses", names(Loss)), ("Poolings", names(Pooling, AttributePooling)), ("Networks", list(OWN))],
)
def test_every_part_has_a_row_and_every_row_a_part(heading: str, known: list[str]) -> None:
    assert len(known) >= 6
    assert sorted(only(row[0]) for row in rows(LIBRARY, heading)) == sorted(known)


def test_a_part_that_the_deviations_name_exists() -> None:
    text = (ROOT / "docs/deviations.md").read_text(encoding="utf-8")
    around = {"koleo", "memory", "zero_shot", "consistency_weight", "diversity_weight"}  # what may stand around a loss: fields of recipes
    for heading, known in (("Losses", {*names(Loss), *around}), ("Poolings", {*names(Pooling, AttributePooling)}), ("Networks", {*OWN})):
        for row in rows(text, heading):
            assert set(quoted(row[0])) <= known, row[0]


def test_the_recipes_of_the_readme_are_those_of_params() -> None:
    table = rows(README, "The method library")
    assert sorted(only(row[0]) for row in table) == sorted(PARAMS.names("methods"))
    for name, _, network, loss, pooling, _ in ([only(row[0]), *row[1:]] for row in table):
        recipe = resolve(PARAMS, "cub", name)
        assert recipe.backbone.name == only(network), name
        assert quoted(loss) == ([recipe.loss.name] if recipe.training.iterations else []), name
        assert ("memory" in loss) is (getattr(recipe, "memory", None) is not None), name
        assert ("zero-shot" in loss) is (getattr(recipe, "zero_shot", None) is not None), name
        assert ("KoLeo" in loss) is (getattr(recipe, "koleo_weight", 0) > 0), name
        if hasattr(recipe, "pooling"):
            assert recipe.pooling.name == only(pooling), name


@pytest.mark.slow
def test_the_dimensions_of_the_readme_are_those_of_the_networks() -> None:
    for row in rows(README, "The method library"):
        recipe = resolve(PARAMS, "cub", only(row[0]), {"backbone.pretrained": False})
        assert initial_method(recipe, classes=4, samples=16, seed=0).dim == int(row[5]), row[0]


def test_the_data_sets_of_the_readme_are_those_of_params() -> None:
    table = {only(row[0]): row for row in rows(README, "Data sets")}
    assert sorted(table) == sorted(PARAMS.names("datasets"))
    for name, row in table.items():
        source, _ = dataset_settings(PARAMS, name)
        if source.kind in PUBLISHED:
            published = PUBLISHED[source.kind]
            assert row[5] == ("yes" if published.linked else "no"), name
            assert set(quoted(row[4])) <= {file.folder + file.name for file in published.files}, name
        else:
            assert all(PUBLISHED[other].linked for other in quoted(row[5])), name


def commands() -> list[tuple[str, list[str]]]:
    """What README and library say to type: the text, and its overrides of params.yaml."""
    typed = [line.split("    #")[0].strip() for line in README.splitlines() if re.match(r"dvc exp run -S 'run.datasets=\S* -S 'run\.", line)]
    found = [(line, re.findall(r"-S '([^']*)'", line)) for line in typed]
    for row, methods, options in rows(LIBRARY, "Rows of the papers' tables"):
        dataset = [] if "run.datasets=" in options else ["run.datasets=[cub]"]
        found.append((row, [*dataset, f"run.methods=[{only(methods)}]", *quoted(options)]))
    return found


def overridden(overrides: list[str], folder: Path) -> Params:
    """params.yaml under the overrides of a command."""
    path = folder / "params.json"
    asked_for = " ".join(overrides)
    few = {group: {name: block for name, block in DOCUMENT[group].items() if name in asked_for} for group in ("methods", "datasets")}
    path.write_text(json.dumps({**DOCUMENT, **few}), encoding="utf-8")  # as little as will do: DVC rewrites the whole file
    apply_overrides(path, overrides)
    return Params(path)


@pytest.mark.parametrize(("row", "overrides"), [pytest.param(*command, id=f"{command[0]} {shlex.join(command[1])}"[:120]) for command in commands()])
def test_a_command_resolves_to_other_recipes_than_those_of_params(row: str, overrides: list[str], tmp_path: Path) -> None:
    asked_for = " ".join(overrides)
    changed = overridden(overrides, tmp_path)
    run = settings(changed, "run", RunSettings)
    methods = run.methods if "run.methods=" in asked_for else run.ensembles
    assert methods, row
    settings(changed, "evaluate", EvaluateSettings)
    for dataset, method in product(run.datasets, methods):
        asked = f"methods.{method}." in asked_for or f"datasets.{dataset}.recipe" in asked_for
        assert (resolve(changed, dataset, method) != resolve(PARAMS, dataset, method)) is asked, f"{row}: {method} on {dataset}"


def studies_of_crt() -> list[tuple[str, list[str]]]:
    """Rows of CRT tables 6 to 10; a row that begins with a dash belongs to the table above it."""
    found, table = [], ""
    for row, overrides in commands():
        table = table if row.startswith("-") else row
        if re.match(r"CRT tables? ([6-9]|10)\b", table):
            found.append((row, overrides))
    return found


def test_the_studies_of_crt_are_of_its_smaller_network_with_shared_branches_outside_of_table_8(tmp_path: Path) -> None:
    studies = studies_of_crt()
    assert len(studies) >= 7
    for row, overrides in studies:
        changed = overridden(overrides, tmp_path)
        (method,) = settings(changed, "run", RunSettings).methods
        recipe = resolve(changed, "cub", method)
        assert recipe.backbone.name == "mit_b1", row
        if method == "crt" and recipe.transform == "coded_residual":
            own = "table 8" in row
            assert recipe.branches == ("separate" if own else "shared"), row
            assert own or recipe.embedding.prototypes == recipe.auxiliary.prototypes, row
        elif method == "ms":
            assert (recipe.dim, recipe.pooling.name) == (128, "average"), row


def test_the_lists_of_k_that_the_library_names_are_settings(tmp_path: Path) -> None:
    lists = [text for text in re.findall(r"-S '([^']*)'", LIBRARY) if text.startswith("evaluate.recall_at=")]
    found = [settings(overridden([text], tmp_path), "evaluate", EvaluateSettings).recall_at for text in lists]
    assert found == [(1, 10, 100, 1000), (1, 10, 20, 30, 40, 50)]


def test_a_row_of_sop_is_resolved_on_sop(tmp_path: Path) -> None:
    of_sop = [overrides for row, overrides in commands() if "(SOP)" in row]
    assert len(of_sop) == 2
    for overrides in of_sop:
        assert settings(overridden(overrides, tmp_path), "run", RunSettings).datasets == ("sop",)
