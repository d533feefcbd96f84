"""The files of data/plots, read by DVC as dvc.yaml names them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from dvc.repo import Repo
from ruamel.yaml import YAML

from unseen.report.plots import recall_curve, write_plots
from unseen.report.report_data import ReportData
from unseen.runtime.sealed import SEAL, unsealed
from unseen.runtime.stage import ROOT


@pytest.fixture
def repository(tmp_path: Path, inputs: ReportData, monkeypatch: pytest.MonkeyPatch) -> Repo:
    """A DVC repository with the files, and with dvc.yaml without its stages."""
    monkeypatch.chdir(tmp_path)
    yaml = YAML(typ="safe")
    content = yaml.load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))
    with open("dvc.yaml", "w", encoding="utf-8") as file:
        yaml.dump({name: content[name] for name in ("metrics", "plots")}, file)
    write_plots(inputs, tmp_path / "data/plots")
    return Repo.init(no_scm=True)


def test_dvc_plots_reads_every_curve(repository: Repo, inputs: ReportData) -> None:
    shown = repository.plots.show()["workspace"]
    assert "error" not in str(shown)
    sources = {
        Path(name).relative_to("data/plots").as_posix(): entry["data"]
        for name, entry in shown["sources"]["data"].items()
    }
    runs = [f"birds/{run.method}/0.csv" for run in inputs.runs]
    expected = {
        *(f"recall/{run}" for run in runs),
        *(f"spectrum/{run}" for run in runs),
        "sweeps/birds/good.csv",
    }
    assert sources.keys() == expected
    for run in inputs.runs:
        curve = {int(row["k"]): float(row["recall"]) for row in sources[f"recall/birds/{run.method}/0.csv"]}
        assert curve[1] == pytest.approx(run.metrics["recall_at_1"], abs=1e-9)
        assert curve[max(curve)] <= 1
    values = [float(row["value"]) for row in sources["spectrum/birds/good/0.csv"]]
    assert values == sorted(values, reverse=True)
    assert sum(values) == pytest.approx(1, abs=1e-4)
    trials = [(row["trial"], row["value"]) for row in sources["sweeps/birds/good.csv"]]
    assert trials == [("0", "0.21"), ("1", "0.125"), ("2", "0.34")]  # trial 3 failed
    definitions: dict[str, Any] = shown["definitions"]["data"]["dvc.yaml"]["data"]
    assert {value["template"] for name, value in definitions.items() if "sweeps" in name} == {"scatter"}


def test_dvc_metrics_reads_the_best_trial_of_every_sweep(repository: Repo) -> None:
    (file,) = repository.metrics.show()[""]["data"].items()
    assert file[0] == "data/plots/sweeps.json"
    metrics = json.loads(json.dumps(file[1]["data"]))
    expected = {"best_map_at_r": 0.34, "trials": 4, "pooling.transport_ratio": 0.3}
    assert {name: value for name, value in metrics.items() if name != SEAL} == {"birds": {"good": expected}}
    path = Path("data/plots/sweeps.json")
    assert unsealed(path, json.loads(path.read_text()), "") == {"birds": {"good": expected}}


def test_a_curve_ends_where_ranks_are_unknown() -> None:
    """Of five queries one has no match, and one a rank beyond those that were computed."""
    queries = pa.table({"relevant": [3, 3, 3, 3, 0], "first_positive": pa.array([1, 2, 5, None, None])})
    assert recall_curve(queries) == [(1, 0.25), (2, 0.5), (4, 0.5)]
    assert recall_curve(queries.slice(3, 1)) == []
    ranks = np.random.default_rng(0).integers(1, 40, 50)
    curve = recall_curve(pa.table({"relevant": np.ones(50, np.int64), "first_positive": ranks}))
    assert curve == [(k, pytest.approx(np.mean(ranks <= k))) for k in (1, 2, 4, 8, 16, 32)]
