"""Documents and code agree: generated pages are current, tables list all parts, commands resolve to
recipes."""

import re
import shlex
from itertools import product
from pathlib import Path
from typing import get_args

import pytest
from dvc.utils.hydra import apply_overrides

from tests.params import resolve
from tools.docs.library import markdown, members
from unseen.config.definitions import Definitions
from unseen.config.document import Params
from unseen.config.recipe_files import published
from unseen.config.resolve import dataset_settings, settings
from unseen.config.stages import RunSettings
from unseen.data.ingest.releases import PUBLISHED
from unseen.data.settings import Batch
from unseen.evaluation.settings import EvaluateBlock
from unseen.experiments.plan.files import plan
from unseen.losses.settings import TERMS, CrossBatchMemory, Loss
from unseen.methods.by_name import LOSSES
from unseen.networks.networks import PROJECT_NETWORKS
from unseen.poolings.settings import AttributePooling, Pooling
from unseen.runtime.settings import Strict

ROOT = Path(__file__).resolve().parents[2]
PARAMS = Params(ROOT / "params.yaml")
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *ROOT.glob("docs/*.md")]
}
PARTS, POOLINGS = members(Loss), members(Pooling, AttributePooling)
Row = list[str]


def rows(page: str, heading: str) -> list[Row]:
    """The cells of the first table below a heading, without its header."""
    lines = PAGES[page][PAGES[page].index(f"# {heading}") :].splitlines()[1:]
    first_line = next(number for number, line in enumerate(lines) if line.startswith("|"))
    table: list[Row] = []
    for line in lines[first_line:]:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split("|")])
    return table[2:]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def single_name(cell: str) -> str:
    """The one name that a cell quotes."""
    (name,) = quoted(cell)
    return name


def name_of(part: type[Strict]) -> str:
    name: str = part.model_fields["name"].default
    return name


@pytest.mark.slow
def test_the_library_is_current() -> None:
    assert PAGES["docs/library.md"] == markdown(), "run `python -m tools.docs.library > docs/library.md`"


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("Recipes", published("methods")),
        ("Losses", [name_of(part) for part in PARTS]),
        ("Poolings", [name_of(part) for part in POOLINGS]),
        ("Without recipes", list(LOSSES)),
        ("Networks", list(PROJECT_NETWORKS)),
    ],
)
def test_every_part_has_a_row(heading: str, names: list[str]) -> None:
    assert len(names) >= 6
    assert [single_name(row[0]) for row in rows("docs/library.md", heading)] == names


@pytest.mark.parametrize("part", [*PARTS, *POOLINGS, CrossBatchMemory, *TERMS.values()])
def test_the_docstring_describes_a_part(part: type[Strict]) -> None:
    assert vars(part).get("__doc__"), (
        "the description in docs/library.md is the docstring of the settings class"
    )


KINDS = {
    "loss": ("Losses", [*map(name_of, PARTS), "memory", *TERMS]),
    "pooling": ("Poolings", list(map(name_of, POOLINGS))),
    "network": ("Networks", list(PROJECT_NETWORKS)),
    "method": ("Methods and heads", published("methods")),
    "sampler": ("Batches and images", list(get_args(Batch.model_fields["sampling"].annotation))),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_deviations_state_the_source_and_the_result_of_every_part(kind: str) -> None:
    """A part without released code names the text. Its result links to the section of its kind if that
    section has a line about it."""
    heading, names = KINDS[kind]
    entries = [row for row in rows("docs/deviations.md", "Parts") if row[0].startswith(f"{kind} ")]
    assert sorted(single_name(row[0]) for row in entries) == sorted(names)
    lines = {name for row in rows("docs/deviations.md", heading) for name in quoted(row[0])}
    link = f"(#{heading.lower().replace(' ', '-')})"
    for part, repository, commit, file, result in entries:
        has_code = re.fullmatch(r"[\w-]+/[\w.-]+", repository) and re.fullmatch(r"[0-9a-f]{7}", commit)
        assert file, part
        assert has_code or (repository, commit) == ("no code", ""), part
        assert result == "equal" or re.fullmatch(r"equal \(\[note\]\(#.+\)\)|\[differs\]\(#.+\)", result), (
            part
        )
        if kind != "sampler":
            assert (link in result) == (single_name(part) in lines), part


@pytest.mark.parametrize("kind", ["loss", "pooling", "network", "method"])
def test_parts_in_the_deviations_exist(kind: str) -> None:
    heading, names = KINDS[kind]
    for row in rows("docs/deviations.md", heading):
        assert set(quoted(row[0])) <= set(names), row[0]


def test_the_readme_names_every_published_recipe() -> None:
    names = {name for row in rows("README.md", "The papers") for name in quoted(row[0])}
    of_gsp = {name for name in published("methods") if name.startswith("gsp_")}
    assert names == {*published("methods")} - of_gsp | {"gsp_..."}
    assert len(of_gsp) == 6


def test_the_documents_list_the_data_sets_of_the_code() -> None:
    table = {single_name(row[0]): row for row in rows("docs/datasets.md", "Data sets")}
    assert sorted(table) == sorted(published("datasets"))
    for name, row in table.items():
        source, _ = dataset_settings(Definitions(PARAMS), name)
        if source.kind in PUBLISHED:
            release = PUBLISHED[source.kind]
            assert row[5] == ("yes" if release.linked_layout else "no"), name
            assert set(quoted(row[4])) <= {file.folder + file.name for file in release.files}, name
        else:
            assert all(PUBLISHED[linked_name].linked_layout for linked_name in quoted(row[5])), name


@pytest.mark.parametrize(
    "page", sorted(PAGES.keys() - {"docs/extending.md", "docs/report.md"})
)  # which add files
def test_the_files_that_a_page_names_exist(page: str) -> None:
    named = set(
        re.findall(r"`((?:pipeline|stages|unseen|tests|docs|benchmarks)/[\w/]+(?:\.\w+)?)`", PAGES[page])
    )
    linked = set(re.findall(r"\]\(([\w/]+\.md)", PAGES[page]))
    folder = (ROOT / page).parent
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
    assert [name for name in sorted(linked) if not (folder / name).exists()] == []


def typed_commands() -> list[tuple[str, list[str]]]:
    """Each `dvc exp run` of the pages: the line and its overrides of params.yaml. Those of extending.md need
    the parts of that page."""
    commands = []
    for text in (text for page, text in PAGES.items() if page != "docs/extending.md"):
        for block in re.findall(r"^```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            lines = re.sub(r" \\\n *", " ", block).splitlines()
            commands += [
                (line, re.findall(r"-S '([^']*)'", line)) for line in lines if line.startswith("dvc exp run")
            ]
    return commands


def tabulated_rows() -> list[tuple[str, list[str]]]:
    """Each row of docs/papers.md: its name and its overrides of params.yaml."""
    commands = []
    for row, methods, options in rows("docs/papers.md", "Rows of the papers' tables"):
        dataset = [] if "run.datasets=" in options else ["run.datasets=[cub]"]
        commands.append((row, [*dataset, f"run.methods=[{single_name(methods)}]", *quoted(options)]))
    return commands


def identified(commands: list[tuple[str, list[str]]]) -> list[object]:
    return [pytest.param(*command, id=f"{command[0]} {shlex.join(command[1])}"[:120]) for command in commands]


def overridden(overrides: list[str], folder: Path) -> Params:
    """params.yaml under the overrides of a command."""
    path = folder / "params.yaml"
    path.write_text(PARAMS.path.read_text(encoding="utf-8"), encoding="utf-8")
    if removed := [f"++{name[1:]}={{dim: 64}}" for name in overrides if name.startswith("~methods.")]:
        apply_overrides(path, removed)  # a command that removes a key follows one that added it
    apply_overrides(path, overrides)
    return Params(path)


def test_the_pages_contain_commands() -> None:
    assert len(typed_commands()) > 15
    assert len(tabulated_rows()) > 30


@pytest.mark.slow
@pytest.mark.parametrize(("line", "overrides"), identified(typed_commands()))
def test_a_command_gives_a_valid_run(line: str, overrides: list[str], tmp_path: Path) -> None:
    plan(overridden(overrides, tmp_path))


@pytest.mark.parametrize(("row", "overrides"), identified(tabulated_rows()))
def test_a_row_changes_the_recipes_of_its_methods(row: str, overrides: list[str], tmp_path: Path) -> None:
    changed = overridden(overrides, tmp_path)
    run = plan(changed)
    assert run.recipes, row
    for dataset, method in product(run.axes.datasets, run.axes.methods):
        has_options = any(f"methods.{method}." in override for override in overrides)
        assert (run.recipes[dataset, method] != resolve(PARAMS, dataset, method)) is has_options, (
            f"{row}: {method} on {dataset}"
        )


@pytest.mark.slow
def test_crt_tables_6_to_10_use_the_smaller_network_and_shared_branches_except_in_table_8(
    tmp_path: Path,
) -> None:
    studies, table = [], ""
    for row, overrides in tabulated_rows():
        table = table if row.startswith("-") else row  # a row with a dash belongs to the table above it
        if re.match(r"CRT tables? ([6-9]|10)\b", table):
            studies.append((row, overrides))
    assert len(studies) >= 7
    for row, overrides in studies:
        changed = overridden(overrides, tmp_path)
        (method,) = settings(changed, "run", RunSettings).methods
        recipe = resolve(changed, "cub", method)
        assert recipe.backbone.name == "mit_b1", row
        if method == "crt" and recipe.transform == "coded_residual":
            separate = "table 8" in row
            assert recipe.branches == ("separate" if separate else "shared"), row
            assert separate or recipe.embedding.prototypes == recipe.auxiliary.prototypes, row
        elif method == "ms":
            assert (recipe.dim, recipe.pooling.name) == (128, "average"), row


def test_the_lists_of_k_are_settings(tmp_path: Path) -> None:
    lists = [
        text
        for text in re.findall(r"-S\s'([^']*)'", PAGES["docs/protocols.md"])
        if text.startswith("evaluate.recall_at=")
    ]
    assert [
        settings(overridden([text], tmp_path), "evaluate", EvaluateBlock).recall_at for text in lists
    ] == [(1, 10)]


def test_a_row_of_sop_is_resolved_on_sop(tmp_path: Path) -> None:
    of_sop = [overrides for row, overrides in tabulated_rows() if "(SOP)" in row]
    assert len(of_sop) == 2
    for overrides in of_sop:
        assert settings(overridden(overrides, tmp_path), "run", RunSettings).datasets == ("sop",)
