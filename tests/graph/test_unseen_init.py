"""A project that `unseen init` made in an empty folder, with the packages as a wheel installs them."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace

import pytest
from ruamel.yaml import YAML

from tests.graph.conftest import EQUAL, ROOT, Project, shrink
from tests.graph.dvc_output import chain, stages_run

pytestmark = [pytest.mark.graph, pytest.mark.ray, pytest.mark.timeout(900)]

CIRCLE = '''
"""Circle loss (Sun et al. 2020, eq. 6)."""

import torch
from parts.margins import MARGIN
from torch.nn.functional import softplus
from unseen.losses.pairs import PairLoss, Pairs


class Circle(PairLoss):
    def __init__(self, gamma: float) -> None:
        super().__init__()
        self.gamma = gamma

    def cost(self, pairs: Pairs) -> torch.Tensor:
        s = pairs.anchors @ pairs.references.T
        positive = pairs.labels[:, None] == pairs.reference_labels
        negative = ~positive
        if pairs.self_index is not None:
            positive = positive.scatter(1, pairs.self_index[:, None], False)
        pull = -(1 + MARGIN - s).clamp(min=0).detach() * (s - 1 + MARGIN)
        push = (s + MARGIN).clamp(min=0).detach() * (s - MARGIN)
        sides = ((pull, positive), (push, negative))
        return softplus(sum((self.gamma * x).masked_fill(~m, -1e4).logsumexp(1) for x, m in sides)).mean()
'''
MINE = """-S '++methods.mine={like: ms, loss: {module: "parts.circle:Circle", gamma: 16}}'"""
SWEEP = "-S '++sweep.mine={space: {loss.gamma: {grid: [8, 16]}}, iterations: 4}'"
FOLDS = "-S 'ensemble.folds=[1, 2]' -S 'ensemble.seeds=[0]' -S 'ensemble.recall_at=[1, 2]'"


@pytest.fixture(scope="module")
def own(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    base = tmp_path_factory.mktemp("own")
    for folder, package in (("pipeline", "unseen"), ("unseen_search",) * 2, ("dvc_parallel",) * 2):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, base / "installed" / package, ignore=ignored)
    made = replace(project, path=base / "my birds", installed=base / "installed")
    made.path.mkdir()
    made.run("unseen init . && git config user.email own@example.org && git config user.name own")
    shrink(made.path / "params.yaml")
    (made.path / "parts/circle.py").write_text(CIRCLE, encoding="utf-8")
    (made.path / "parts/margins.py").write_text("MARGIN = 0.25\n", encoding="utf-8")
    made.commit("start")
    yield made
    assert made.processes() == []


def test_the_graph_of_the_project_is_that_of_a_clone(own: Project) -> None:
    graphs = [YAML(typ="safe").load(path / "dvc.yaml")["stages"] for path in (own.path, ROOT)]
    dependencies = [graph["resolve"].pop("deps") for graph in graphs]
    assert dependencies == [["unseen.lock", "parts", "studies"], ["pipeline", "stages", "parts", "studies"]]
    assert graphs[0] == graphs[1]
    assert own.run("git status --porcelain --ignored") == ""


def test_the_graph_gives_the_bytes_of_a_clone(own: Project, built: Project) -> None:
    output = own.run("unseen run")
    assert "report: data/report/index.html" in output
    assert own.digests("resolved", *EQUAL) == built.digests("resolved", *EQUAL)
    own.commit("first run")
    assert own.run("git status --porcelain") == ""
    assert "complete" in own.run("unseen study --list")
    assert "6 trainings" in own.run("unseen study example --no-run")
    own.restore()


def test_an_own_loss_goes_through_all_stages(own: Project) -> None:
    run = "-S 'run.methods=[ms, mine]' -S 'run.sweeps=[mine]' -S 'run.ensembles=[mine]'"
    output = own.run(f"dvc exp run {MINE} {SWEEP} {FOLDS} {run}")
    cells = ("train_fold@parts-mine-1-0", "export_fold@parts-mine-2-0", "ensemble@parts-mine")
    assert {*chain("parts", "mine"), "sweep@parts-mine", *cells, "report"} <= stages_run(output)
    assert stages_run(output).isdisjoint(chain("parts", "ms"))
    of_mine, of_ms = (
        json.loads((own.path / f"data/resolved/train/parts/{name}.json").read_text(encoding="utf-8"))["code"]
        for name in ("mine", "ms")
    )
    assert {*of_mine} - {*of_ms} == {"parts", "parts.circle", "parts.margins"}
    own.commit("own loss")

    (own.path / "parts/margins.py").write_text("MARGIN = 0.3\n", encoding="utf-8")
    own.run("dvc repro resolve")
    changed = [line for line in own.run("dvc status").splitlines() if line.endswith(":") and "@" in line]
    assert changed
    assert all("parts-mine" in line for line in changed), changed
    own.restore()


def test_another_version_runs_after_it_is_accepted(own: Project) -> None:
    assert own.installed is not None
    module = own.installed / "unseen/stages/analyze.py"
    text = module.read_text(encoding="utf-8")
    module.write_text(f"{text}\nCHANGED = True\n", encoding="utf-8")
    for command in ("dvc repro --force --single-item resolve", "unseen run"):
        assert "contains unseen 0.2.0 with other files" in own.refused(command)
    assert "accepts unseen 0.2.0" in own.run("unseen lock")
    own.run("dvc repro resolve")
    changed = [line for line in own.run("dvc status").splitlines() if line.endswith(":") and "@" in line]
    assert changed
    assert all(line.startswith("analyze@") for line in changed), changed
    module.write_text(text, encoding="utf-8")
    own.restore()
