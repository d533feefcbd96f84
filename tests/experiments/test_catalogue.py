"""The studies of the papers are valid and complete; a study of a user is read, or refused with its line."""

from itertools import product
from pathlib import Path

import pytest

from tests.params import resolve, write
from unseen.config.definitions import Definitions
from unseen.config.document import Params
from unseen.config.recipe_files import published as published_recipes
from unseen.config.stages import TrainSettings
from unseen.evaluation.settings import Reduce
from unseen.experiments.catalogue import (
    contrasts,
    definitions,
    entries,
    in_order,
    printed_key,
    studies,
    study_of,
)
from unseen.experiments.printed.model import papers
from unseen.experiments.printed.model import rows as printed_rows
from unseen.experiments.run_studies import studies_of_run
from unseen.experiments.selection import axes_of
from unseen.networks.weights import published_weights
from unseen.runtime.errors import UserError
from unseen.runtime.stage import ROOT
from unseen.training.job import job_of

PUBLISHED = [item for item in studies().values() if item.is_published]
ITEMS = {
    "crt": [*(f"table {n}" for n in range(1, 11)), *(f"figure {n}" for n in (1, 2, 3))],
    "multihead": [
        *(f"table {n}" for n in (1, 2, 3)), "section 4.5", "figure 1", "figure 2", "figure 3", "figure 4",
        "figure 5a", "figure 5b", "figure 6", "figure 7", "figure 8",
    ],
    "gsp": [
        "table 1", "table 2", "figure 1", "figure 2", "figure 3a", "figure 3b", "figure 4", "figure 5",
        "figure 6", "figure 7 left", "figure 7 right", "supplement",
    ],
    "irt": [*(f"table {n}" for n in range(1, 10)), *(f"figure {n}" for n in range(1, 6))],
}  # fmt: skip


def test_every_table_and_figure_of_the_papers_is_a_study() -> None:
    listed = [(item.study.source.paper, item.study.source.item) for item in PUBLISHED if item.study.source]
    assert sorted(listed) == sorted((paper, item) for paper, items in ITEMS.items() for item in items)
    others = {item.name for item in PUBLISHED if item.study.source is None}
    assert others == {item.study.start for item in PUBLISHED if item.study.start}
    printed = {(paper.key, table.table) for paper in papers() for table in paper.tables}
    tables = {(item.study.source.paper, item.study.table) for item in PUBLISHED if item.study.source}
    assert printed <= tables


def test_every_printed_row_with_a_recipe_is_a_row_of_a_study() -> None:
    rows = {entry.printed for item in PUBLISHED for entry in entries(item)}
    named = [row for row in printed_rows() if row.method is not None]
    assert len(named) > 450
    assert {printed_key(row.method, row.recipe) for row in named} <= rows


def test_data_sets_of_a_study_are_those_of_its_numbers() -> None:
    for item in PUBLISHED:
        if item.study.table is not None and item.study.source is not None:
            of_table = {
                row.dataset
                for row in printed_rows()
                if (row.paper, row.table) == (item.study.source.paper, item.study.table)
            }
            assert of_table - {"landmarks"} <= set(item.study.datasets) <= of_table, item.name
        assert set(item.study.datasets) <= set(published_recipes("datasets"))


@pytest.mark.slow
def test_every_row_resolves_on_its_data_sets_and_on_the_built_in_set() -> None:
    names = {entry.method: item for item in PUBLISHED for entry in entries(item)}
    params = definitions(Params(ROOT / "params.yaml"), *names)
    assert set(params.rows) == set(names)
    for name, item in names.items():
        for dataset in (*item.study.datasets, "parts"):
            network = resolve(params, dataset, name).backbone
            assert not network.pretrained or network.name in published_weights(), (name, dataset)


def test_equal_trainings_have_one_name() -> None:
    rows = {entry.label: entry.method for entry in entries(study_of("crt-table-9"))}
    assert rows["K2 = 64"] == "crt-table-5-mit-b1-plus-crt"
    assert rows["K2 = 16"] == "crt-table-9-k2-16"
    by_name: dict[str, str] = {}
    for item in PUBLISHED:
        for entry in entries(item):
            training = f"{entry.row.like} {sorted(entry.row.recipe.items(), key=str)} {entry.row.protocol}"
            assert by_name.setdefault(entry.method, training) == training
    assert len(by_name) < sum(len(entries(item)) for item in PUBLISHED) - 50


def test_a_reduction_of_one_study_applies_to_the_shared_row() -> None:
    (row,) = [entry.row for entry in entries(study_of("crt-table-3")) if entry.label == "IRT_R"]
    assert row.reduce == Reduce(dim=128, whiten="none")  # table 2 of IRT
    assert all(entry.row.reduce is None for entry in entries(study_of("crt-table-8")))


def test_rows_have_the_reductions_of_all_their_studies() -> None:
    for item in PUBLISHED:
        for name in ("reduce", "analyze_reduce"):
            reduce = getattr(item.study, name)
            values = [getattr(entry.row, name) for entry in entries(item)]
            assert reduce is None or values == [reduce] * len(values), (item.name, name)


@pytest.mark.slow
def test_a_run_covers_the_studies_all_of_whose_rows_it_has() -> None:
    methods = tuple(entry.method for entry in entries(study_of("crt-table-9")))
    params = definitions(Params(ROOT / "params.yaml"), *methods)
    assert [study.name for study in studies_of_run(params, methods)] == ["crt-table-9"]
    assert studies_of_run(params, methods[1:]) == ()
    both = (*methods, *(entry.method for entry in entries(study_of("crt-table-7"))))
    assert [study.name for study in studies_of_run(params, both)] == ["crt-table-7", "crt-table-9"]
    assert studies_of_run(Definitions(Params(ROOT / "params.yaml")), ("ms",)) == ()


def test_a_grid_gives_every_combination_with_tied_fields(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "mine:\n  title: t\n  datasets: [parts]\n  methods: {a: {like: crt}, b: {like: crt_average}}\n"
        "  space:\n    embedding.prototypes: {grid: [4, 8], tied: [auxiliary.prototypes]}\n"
        "    diversity_weight: {grid: [0.0, 0.5, 1.0]}\n",
        encoding="utf-8",
    )
    rows = entries(study_of("mine", tmp_path))
    values = [
        (row.row.like, *(row.row.recipe[name] for name in
        ("embedding.prototypes", "auxiliary.prototypes", "diversity_weight")))
        for row in rows
    ]  # fmt: skip
    assert values == [
        (like, k, k, weight) for like, k, weight in product(("crt", "crt_average"), (4, 8), (0.0, 0.5, 1.0))
    ]
    assert rows[0].method == "mine-a-prototypes-4-diversity-weight-0"
    assert len({row.method for row in rows}) == 12
    assert list(study_of("mine", tmp_path).study.numeric_axes) == ["embedding.prototypes", "diversity_weight"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a:\n  title: t\n", "mine.yaml:1: a: give exactly one of"),
        ("a:\n  title: t\n  methods: {x: {dim: 3}}\n  datasets: [parts]\n", "methods.x.like is missing"),
        ("a:\n  title: t\n  methods: {x: {like: ms}}\n", "`datasets` is missing"),
        ("a:\n  title: t\n  command: x\n  unavailable: y\n", "give exactly one of"),
        ("a:\n  title: t\n  dataset: x\n", "mine.yaml:3: a.dataset: Extra inputs"),
        ("a_b c:\n  title: t\n  command: x\n", "mine.yaml:1: a_b c: a name starts with"),
        (
            "a:\n  title: t\n  methods: {x: {like: ms}}\n  datasets: [parts]\n"
            "  space: {dim: {choice: [1]}}\n",
            "space.dim: a study needs a grid",
        ),
        (
            "a:\n  title: t\n  methods: {x: {like: ms}}\n  datasets: [parts]\n"
            "  space: {dim: {grid: [8, 9]}}\n  search: {total: 2, space: {dim: {grid: [8, 9]}}}\n",
            "search.space.dim: `space` gives the rows different values",
        ),
        (
            "a:\n  title: t\n  methods: {x: {like: ms}}\n  datasets: [parts]\n  sources: {cub: {path: x}}\n",
            "sources.cub: not in `datasets`",
        ),
        (
            "a:\n  title: t\n  methods: {x: {like: ms}}\n  datasets: [parts]\n"
            "  sources: {parts: {kind: folder}}\n",
            "sources.parts: give settings of the source other than its kind",
        ),
        ("a:\n  title: t\n  table: x\n  datasets: [parts]\n", "`table` needs `source.paper`"),
        (
            "a:\n  title: t\n  methods: {x: {like: ms, label: 3}}\n  datasets: [parts]\n",
            "methods.x.label: give a text",
        ),
        (
            "a:\n  title: t\n  methods: {x: {like: ms}}\n  datasets: [parts]\n  axes: {a: a, b: b, c: c}\n",
            "axes: one or two fields, got 3",
        ),
        (
            "crt-table-8:\n  title: t\n  command: x\n",
            "study crt-table-8 is already defined in pipeline/recipes",
        ),
    ],
)
def test_refuses_a_study_that_is_not_valid(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as raised:
        studies(tmp_path)
    assert message in raised.value.what


def test_two_studies_share_a_data_set_with_equal_settings_only(tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    study = (
        "{}:\n  title: t\n  methods: {{x: {{like: ms}}}}\n  datasets: [folder]\n"
        "  sources: {{folder: {{path: {}}}}}\n"
    )
    for first, second in (("a b", "a b"), ("a b", "a-b")):
        text = study.format("one", first) + study.format("two", second)
        (tmp_path / "studies" / "mine.yaml").write_text(text, encoding="utf-8")
        params = write(tmp_path, {"run": {"datasets": ["folder-path-a-b"]}})
        if first == second:
            assert definitions(params).sets["folder-path-a-b"].source == {"path": "a b"}
        else:
            with pytest.raises(UserError, match=r"mine.yaml:10: two.sources.folder: .* \(.*mine.yaml:5\)"):
                definitions(params)


def test_the_comparisons_of_a_study_are_its_rows_against_one_control_or_their_baselines() -> None:
    item = study_of("gsp-poolings")
    rows = entries(item)
    assert contrasts(item.study, rows) == tuple((row.method, rows[0].method) for row in rows[1:])
    assert len(contrasts(item.study, rows)) == 14
    for item in (study_of(name) for name in ("gsp-figure-6", "multihead-table-1")):
        rows = entries(item)
        method_of = {entry.label: entry.method for entry in reversed(rows)}
        pairs = contrasts(item.study, rows)
        if item.name == "gsp-figure-6":
            assert pairs == tuple((method_of[a], method_of[b or ""]) for a, b in item.study.baselines.items())
        else:
            assert {control for _, control in pairs} == {method_of["Ours"]}
            assert len(pairs) == len(rows) - 1


def test_rows_start_at_the_model_of_the_study_before(tmp_path: Path) -> None:
    """At the path that this training writes. A row on a small set with another network has none."""
    assert in_order("gsp-figure-3b") == ["gsp-figure-3b-start", "gsp-figure-3b"]
    start, item = map(study_of, in_order("gsp-figure-3b"))
    axes = axes_of(start)
    (dataset,), (method,), (seed,) = axes["datasets"], axes["methods"], axes["seeds"]
    of_start = definitions(Params(ROOT / "params.yaml"), method, datasets=(dataset,)).layers(dataset, method)
    model = job_of(dataset, method, seed, of_start.recipe(), tmp_path, TrainSettings()).outputs.model
    weights = str(model.relative_to(tmp_path) / "weights.safetensors")
    sets = axes_of(item)["datasets"]
    assert sets == ["collage", "collage-distilled-true"]
    for entry in entries(item):
        known = definitions(Params(ROOT / "params.yaml"), entry.method, datasets=tuple(sets))
        recipes = [known.layers(name, entry.method).recipe() for name in (*sets, "parts")]
        starts = [(recipe.input.size, recipe.backbone.checkpoint) for recipe in recipes]
        assert starts == [(64, weights), (32, weights), (56, None)]


def test_refuses_a_study_that_starts_at_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "studies").mkdir()
    study = "{}:\n  title: t\n  start: {}\n  methods: {{x: {{like: ms}}}}\n  datasets: [parts]\n"
    text = study.format("a", "b") + study.format("b", "a")
    (tmp_path / "studies" / "mine.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"mine.yaml:3: a.start: it starts at itself"):
        in_order("a")


def test_refuses_a_baseline_that_is_not_a_row(tmp_path: Path) -> None:
    text = (
        "a:\n  title: t\n  methods: {a: {like: ms}, b: {like: crt}}\n  datasets: [parts]\n"
        "  baselines: {a: bb}\n"
    )
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"mine.yaml:5: a.baselines: there is no row 'bb'"):
        entries(study_of("a", tmp_path))


def test_refuses_an_unknown_table(tmp_path: Path) -> None:
    text = "a:\n  title: t\n  source: {paper: crt, item: x}\n  table: '99'\n  datasets: [cub]\n"
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"pipeline/experiments/printed/crt.yaml has no table '99'"):
        entries(study_of("a", tmp_path))


def test_refuses_an_unknown_study_with_a_proposal() -> None:
    with pytest.raises(UserError, match="There is no study crt-tabel-8"):
        study_of("crt-tabel-8")
