"""A study sets the axes of params.yaml and nothing else."""

import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from unseen.cli import study
from unseen.experiments.catalogue import entries, study_of
from unseen.experiments.selection import axes_of, set_axes
from unseen.runtime.errors import UserError
from unseen.runtime.stage import ROOT


@pytest.fixture
def params(tmp_path: Path) -> Path:
    return Path(shutil.copy(ROOT / "params.yaml", tmp_path / "params.yaml"))


def run_of(path: Path) -> dict[str, list[object]]:
    return dict(YAML(typ="safe").load(path.read_text(encoding="utf-8"))["run"])


def test_axes_of_a_study() -> None:
    item = study_of("gsp-table-1")
    methods = [entry.method for entry in entries(item)]
    axes = axes_of(item, ("cub",), (0, 1))
    assert axes == {
        "datasets": ["cub"], "methods": methods, "seeds": [0, 1], "sweeps": [], "ensembles": methods,
    }  # fmt: skip
    assert axes_of(item)["datasets"] == ["sop", "inshop", "cub", "cars"]
    mini = axes_of(item, mini=True)
    assert (mini["datasets"], mini["ensembles"]) == (["parts"], [])


def test_a_data_set_with_source_settings_is_another_data_set() -> None:
    item = study_of("gsp-figure-5")
    for datasets in ((), ("cifar10",), ("cifar10-split-images",)):
        assert axes_of(item, datasets)["datasets"] == ["cifar10-split-images"]
    assert axes_of(item, ("cub",))["datasets"] == ["cub"]
    assert axes_of(item, mini=True)["datasets"] == ["parts"]


def test_a_study_with_a_search_sweeps_its_rows(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "mine:\n  title: t\n  methods: {a: {like: ms}, b: {like: crt}}\n  datasets: [parts]\n"
        "  search: {total: 2}\n",
        encoding="utf-8",
    )
    assert axes_of(study_of("mine", tmp_path))["sweeps"] == ["mine-a", "mine-b"]


def test_sets_the_axes_and_keeps_the_rest_of_the_file(params: Path) -> None:
    before = params.read_text(encoding="utf-8")
    rest = before[before.index("ingest:") :]
    original = run_of(params)
    changes = set_axes(params, axes_of(study_of("gsp-table-1"), ("cub",)))
    assert run_of(params)["ensembles"] == run_of(params)["methods"] != original["methods"]
    assert {change.axis for change in changes} == {"datasets", "methods", "sweeps", "ensembles"}
    assert params.read_text(encoding="utf-8").endswith(rest)
    assert "  ensembles: [gsp-table-1-neither" in params.read_text(encoding="utf-8")
    assert "] # methods to evaluate also by the MLRC protocol" in params.read_text(encoding="utf-8")
    set_axes(params, original | {"sweeps": []})
    assert params.read_text(encoding="utf-8") == before.replace("sweeps:\n  - gsp\n", "sweeps: []\n")


def test_studies_in_sequence_do_not_interfere(params: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Path(shutil.copy(params, tmp_path / "other" / "params.yaml"))
    for name in ("gsp-table-1", "crt-table-5", "crt-table-8"):
        set_axes(params, axes_of(study_of(name)))
    set_axes(other, axes_of(study_of("crt-table-8")))
    assert YAML(typ="safe").load(params.read_text(encoding="utf-8")) == YAML(typ="safe").load(
        other.read_text(encoding="utf-8")
    )
    assert set_axes(params, axes_of(study_of("crt-table-8"))) == []


@pytest.mark.parametrize(("name", "reason"), [("crt-figure-1", "a diagram"), ("gsp-figure-4", "python -m")])
def test_refuses_a_study_without_trainings(name: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        axes_of(study_of(name))


@pytest.mark.slow
def test_the_command_keeps_params_if_the_run_is_not_valid(
    params: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(params.parent)
    before = params.read_bytes()
    with pytest.raises(UserError, match=r"unknown datasets\.cubs"):
        study.select("crt-table-8", ("cubs",), (), False)
    assert params.read_bytes() == before
    text = study.select("crt-table-8", ("cub",), (0, 1), False)
    assert "8 trainings: data sets x rows x seeds" in text
    assert "params.yaml: run.seeds = [0,1]" in text
    assert "  run.seeds = [0]" in text
    assert run_of(params)["datasets"] == ["cub"]
    assert "of folds" not in text
    text = study.select("gsp-table-1", ("cub",), (), False)
    assert "4 trainings: data sets x rows x seeds\n48 trainings of folds: the numbers of the table" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run: # r\n  seeds: [0] # s\n", "run: # r\n  seeds: [1, 2] # s\n"),
        (
            "a: 1\nrun:\n    seeds: # s\n    - 0\n    - 3\n\nb: 2\n",
            "a: 1\nrun:\n    seeds: # s\n    - 1\n    - 2\n\nb: 2\n",
        ),
        ("run:\n  seeds:\n  - 0 # first\n", "run:\n  seeds:\n  - 1\n  - 2\n"),
        ("run:\n  x: [0]\n", "run:\n  seeds: [1, 2]\n  x: [0]\n"),
        ("run:\n  seeds: 0\n", "run:\n  seeds: [1, 2]\n"),
    ],
)
def test_replaces_lists_of_every_style(text: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(text, encoding="utf-8")
    set_axes(path, {"seeds": [1, 2]})
    assert path.read_text(encoding="utf-8") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run: {seeds: [0]}\n", "cannot be replaced"),
        ("run:\n  seeds: [0,\n    1]\n", "cannot be replaced"),
        ("ingest: {}\n", "block run is missing"),
    ],
)
def test_refuses_a_list_that_it_cannot_replace(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        set_axes(path, {"seeds": [1, 2]})
    assert path.read_text(encoding="utf-8") == text
