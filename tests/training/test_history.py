"""The curve of a run: means over windows, regular columns."""

from pathlib import Path

import pytest
import torch

from tests.training.jobs import job, recipe
from unseen.runtime.sealed import read_sealed_csv
from unseen.training import flat_terms, history, loop
from unseen.training.step import Step

METRICS = {"recall_at_1": 0.5, "map_at_r": 0.25, "r_precision": 0.125}


def test_a_row_holds_the_means_since_the_row_before(tmp_path: Path) -> None:
    window: history.Window = {}
    history.add(window, Step(loss=3.0, terms={"pair": 3.0}, gradient_norm=1.0, learning_rate=0.1))
    history.add(
        window, Step(loss=5.0, terms={"pair": 4.0, "late": 1.0}, gradient_norm=3.0, learning_rate=0.2)
    )
    first = history.close(window, 2, 0.5, 0.2, METRICS)
    means = {"loss": 4.0, "pair": 3.5, "late": 0.5, "grad_norm": 2.0}
    assert first == pytest.approx({"iteration": 2, "epoch": 0.5, "lr": 0.2, **means, **METRICS})
    assert window == {}
    history.add(window, Step(loss=1.0, terms={"pair": 1.0}, gradient_norm=1.0, learning_rate=0.3))
    rows = [first, history.close(window, 3, 0.75, 0.3, METRICS)]
    history.write_history(tmp_path / "deep/0.csv", rows)
    assert (tmp_path / "deep/0.csv").read_text().splitlines()[:2] == [
        "iteration,epoch,lr,loss,late,pair,grad_norm,recall_at_1,map_at_r,r_precision,sha256",
        "2,0.5,0.2,4,0.5,3.5,2,0.5,0.25,0.125,",
    ]
    last = read_sealed_csv(tmp_path / "deep/0.csv", "")[1]
    assert list(last.values()) == ["3", "0.75", "0.3", "1", "0", "1", "1", "0.5", "0.25", "0.125"]


def test_one_of_several_terms_that_stays_at_its_first_value_has_a_remark() -> None:
    rows: list[history.Row] = [
        {"iteration": step, "loss": 1.0, "pair": 1 / step, "zero_shot": 0.3936 + 0.0001 * step}
        for step in range(1, 4)
    ]
    (remark,) = history.remarks(rows, "gsp")
    assert remark == (
        "Term zero shot of gsp stays within 1% of its first value: this training does not lower it. "
        "docs/papers.md lists the changes with which it learns."
    )
    assert history.remarks([row | {"pair": 1.0} for row in rows[:1]], "gsp") == []
    assert history.remarks([{"iteration": step, "pair": 1.0} for step in range(3)], "ms") == []


@pytest.mark.slow
def test_a_training_prints_the_remark(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(flat_terms, "FLAT", 1e9)
    loop.train(job(root, recipe("crt")), 0, 1, torch.device("cpu"))
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: Term ")]
    assert len(notes) == 4
    assert notes[0].startswith("note: Term consistency of ")
