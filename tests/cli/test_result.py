"""The lines that a run prints at its end."""

import re
from pathlib import Path

import pytest

from unseen.cli.result import result
from unseen.config.inputs import ROOT, SCHEMA
from unseen.runtime.errors import UserError
from unseen.runtime.files import write_json
from unseen.runtime.sealed import write_sealed

RUN = {"datasets": ["parts"], "methods": ["ms", "gsp"], "seeds": [0], "sweeps": [], "ensembles": []}
VERDICT = "parts has 10 images. gsp reaches MAP@R: 9.1."


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    report = {"title": "t", "queries": 1, "neighbours": 1, "thumbnail": 8}
    settings = {
        "run": RUN,
        "report": report,
        "sweeps": [],
        "like": {"ms": "ms", "gsp": "gsp"},
        "costs": {},
        "studies": [],
    }
    write_json(ROOT / "report.json", {"schema": SCHEMA, "code": {}, "settings": settings})
    for method, value in (("ms", 0.081), ("gsp", 0.091)):
        bounds = {"map_at_r_low": value - 0.01, "map_at_r_high": value + 0.01, "features_map_at_r": 0.02}
        metrics = {"recall_at_1": 4 * value, "map_at_r": value, "queries": 10, **bounds}
        write_sealed(Path("data/metrics/parts", method, "0.json"), metrics)
    write_json(tmp_path / "data/report/verdict.json", {"parts": VERDICT, "of an earlier run": "x"})
    return tmp_path


def test_contains_the_verdict_the_headline_numbers_and_the_path(built: Path) -> None:
    assert result() == [
        VERDICT,
        "",
        "parts  Recall@1  MAP@R             features before training",
        "ms     32.4      8.1 (7.1 – 9.1)   2.0",
        "gsp    36.4      9.1 (8.1 – 10.1)  2.0",
        "",
        "report: data/report/index.html",
    ]


def test_a_method_without_features_has_no_number_of_them(built: Path) -> None:
    metrics = {"recall_at_1": 0.4, "map_at_r": 0.1, "queries": 10}
    write_sealed(built / "data/metrics/parts/gsp/0.json", metrics)
    assert [line.split() for line in result()[3:5]] == [
        ["ms", "32.4", "8.1", "(7.1", "–", "9.1)", "2.0"],
        ["gsp", "40.0", "10.0", "–"],
    ]


def test_names_a_missing_file(built: Path) -> None:
    for name in ("data/metrics/parts/ms/0.json", "data/report/verdict.json"):
        (built / name).unlink()
        with pytest.raises(UserError, match=re.escape(name)):
            result()
