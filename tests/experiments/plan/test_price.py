"""The price of a run: the number of its trainings and steps, and a lower bound of its hours."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from unseen.cli.cost import table
from unseen.config.document import Params
from unseen.experiments.catalogue import study_of
from unseen.experiments.plan import price as module
from unseen.experiments.plan.facts import Built, Facts
from unseen.experiments.plan.files import plan
from unseen.experiments.plan.price import GPUS, Price, prices
from unseen.experiments.selection import axes_of, set_axes
from unseen.methods.settings import Cost, Recipe, StepCost
from unseen.runtime.stage import ROOT

STEP = StepCost(flops=10**12, moved=10**11, fixed=10**9, per_image=1e8)


class Known(Facts):
    """Facts of which none is computed."""

    def step(self, recipe: Recipe, classes: int, samples: int) -> StepCost:
        assert (classes, samples) in ((100, 5_864), (100, 5_000))
        return STEP

    def cost(self, recipe: Recipe) -> Cost:
        return Cost(parameters=10**6, flops=1)

    def built(self, recipe: Recipe, in_passes: bool) -> Built:
        assert not recipe.backbone.pretrained, "a price needs no file of weights"
        return Built(dim=recipe.dim or 512, saved=10**6, terms=("loss",))


def of_study(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, dataset: str = "cub") -> list[Price]:
    monkeypatch.chdir(ROOT)
    copy = folder / "params.yaml"
    copy.write_text(Path("params.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    set_axes(copy, axes_of(study_of(name), (dataset,)))
    run = plan(Params(Path("params.yaml"), text=copy.read_text(encoding="utf-8")))
    monkeypatch.setattr(module, "measured_seconds", lambda *_: 0.5)
    return list(prices(run, Known(), torch.device("cpu"), 2**60))


def test_folds_are_counted_with_their_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GSP table 1: 4 rows and, of each, 4 folds with 3 seeds."""
    priced = of_study("gsp-table-1", tmp_path, monkeypatch)
    assert sum(price.trainings for price in priced) == 4 + 4 * 4 * 3
    text = table(priced)
    assert "52 trainings with" in text
    steps = sum(price.steps for price in priced)
    assert f"this machine, by a measured step: {steps * 0.5 / 3600:,.1f} h" in text
    rows = (4 * 5_924 + 5_864) + 4 * 3 * 5_924  # of the embeddings of a training, and of its folds
    assert {price.disk for price in priced} == {4 * (13 * 3 * 10**6 + rows * 128)}


def test_hours_are_a_roofline_and_a_step_that_does_not_fit_has_none() -> None:
    price = Price("cub", "ms", 2, 7_200, 80, 80, STEP, STEP, 1.0, 0)
    l4, _, _, h100 = GPUS
    assert price.hours(l4) == pytest.approx(7_200 * (1e11 / 300e9) / 3600), "bounded by the bandwidth"
    assert price.hours(h100) == pytest.approx(7_200 * (1e11 / 3.35e12) / 3600)
    large = Price("cub", "ms", 2, 7_200, 400, 400, STEP, STEP, 1.0, 0)
    assert large.hours(l4) is None
    assert "230 images fit" in table([large])
    assert "L4 0.0 h (rows that fit)" in table([large])


def test_a_process_on_a_cpu_takes_more_memory_than_its_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for price in of_study("gsp-table-1", tmp_path, monkeypatch):
        assert price.on_gpu == STEP
        assert price.here.memory(price.images) == pytest.approx(1.28 * STEP.memory(price.images))
        assert price.here.flops == STEP.flops


def test_an_assumed_size_is_stated() -> None:
    price = Price("tokens", "ms", 2, 7_200, 80, 80, STEP, STEP, 1.0, 0)
    assumed = "The size of tokens is known after stage ingest: priced as 100 classes with 5,000 images"
    assert assumed in table([replace(price, assumed=True)])
    assert assumed not in table([price])


def test_equal_steps_are_one_row_and_refit_trains_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    priced = of_study("multihead-figure-1", tmp_path, monkeypatch)
    twice = next(price for price in priced if "proxy-nca" in price.method)
    assert twice.steps == 2 * 3_600
    watched = 4 * 10**6 + 512 * (4 * 5_924 + 5_864)
    assert twice.disk == 4 * watched, "also the weights of the best step on the test classes"
    assert len({(price.method, price.batch) for price in priced}) == len(priced)
    assert not any(price.assumed for price in priced), "the counts of CUB are published"
    assert all(price.assumed for price in of_study("gsp-figure-3a", tmp_path, monkeypatch, "tokens"))
