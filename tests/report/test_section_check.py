"""`unseen check` of a section of the report, with the results of a run."""

from collections.abc import Callable
from pathlib import Path

import pytest

from unseen.cli.main import main
from unseen.config.inputs import ReportInputs, content_of, path_of
from unseen.runtime.files import write_json

MODULE = """
import itertools

count = itertools.count()


def content(dataset, first: int = 1):
    return {"methods": dataset.methods[:first], "drawn": DRAWN}
"""
TEMPLATE = "{% for method in methods %}<p>{{ method.name }} {{ drawn }}</p>{% endfor %}"


@pytest.fixture
def checked(
    make_project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Writes the section `own_<name>` beside the results of a run and returns what its check prints."""
    root = make_project(noise={"good": 0.25}).parent
    run = {"datasets": ["birds"], "methods": ["good"], "seeds": [0]}
    empty = {"sweeps": [], "like": {}, "studies": [], "costs": {}}
    inputs = ReportInputs.parse({"run": run, "report": {}, **empty})
    monkeypatch.chdir(root)
    monkeypatch.syspath_prepend(root)
    path_of("report").parent.mkdir(parents=True, exist_ok=True)
    write_json(path_of("report"), content_of(inputs, {}))

    def check(name: str, *settings: str, module: str = MODULE, template: str = TEMPLATE) -> str:
        (root / f"own_{name}.py").write_text(module, encoding="utf-8")
        (root / f"own_{name}.html").write_text(template, encoding="utf-8")
        try:
            main(["check", f"own_{name}", *settings])
        except SystemExit as ended:
            return f"status {ended.code}: {''.join(capsys.readouterr())}"
        return capsys.readouterr().out

    return check


def test_a_section_is_drawn_with_the_results_of_the_last_run(checked: Callable[..., str]) -> None:
    constant = MODULE.replace("DRAWN", "1")
    passed = "passed  Content and template give HTML for each data set of the last run"
    assert checked("right", "first=1", module=constant).startswith(passed)
    assert checked("omitted", module="def content(dataset):\n    return None\n").startswith(passed)
    changing = checked("changing", module=MODULE.replace("DRAWN", "next(count)"))
    assert changing.startswith("status 1: FAILED  ")
    assert "Two pages differ." in changing
    unknown = checked("unknown", module=constant, template="{{ methods[0].nam }}")
    assert "FAILED" in unknown
    assert "UndefinedError" in unknown
    assert "status 1" in checked("typo", "frist=1", module=constant)


def test_without_results_the_remedy_is_a_run(checked: Callable[..., str]) -> None:
    path_of("report").unlink()
    output = checked("alone", module=MODULE.replace("DRAWN", "1"))
    assert "data/resolved/report.json is missing" in output
    assert "dvc repro" in output
