"""The resolved files of a run: their contents, and the changes that affect them."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.params import project, resolve
from unseen.config.inputs import MODELS, TrainInputs, parse_inputs, path_of, read_inputs
from unseen.evaluation.settings import Reduce
from unseen.experiments.catalogue import entries, study_of
from unseen.experiments.plan.files import files, plan, with_reductions
from unseen.runtime.code import code_of
from unseen.runtime.errors import UserError
from unseen.runtime.files import write_json
from unseen.runtime.stage import PACKAGE

CODE = code_of(PACKAGE)


def resolved(folder: Path, changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """Path below data/resolved -> content."""
    return {
        path.relative_to("data/resolved").as_posix(): content
        for path, content in files(plan(project(folder, changes)), CODE)
    }


_UNCHANGED: dict[str, Any] = {}


def unchanged(folder: Path) -> dict[str, Any]:
    """The resolved files of the project's params.yaml, which are built once."""
    if not _UNCHANGED:
        _UNCHANGED.update(resolved(folder))
    return _UNCHANGED


def changed(folder: Path, changes: dict[str, Any], base: dict[str, Any] | None = None) -> set[str]:
    """The resolved files that differ under changes."""
    contents_before = unchanged(folder) if base is None else resolved(folder, base)
    contents_after = resolved(folder, (base or {}) | changes)
    return {
        name
        for name in contents_before.keys() | contents_after.keys()
        if contents_before.get(name) != contents_after.get(name)
    }


@pytest.mark.slow
def test_a_training_from_a_file_of_weights_depends_on_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also that of a fold and the trials of a sweep; the others keep their files."""
    monkeypatch.chdir(tmp_path)
    start, changes = Path("start.safetensors"), {"run.methods": ["ms", "gsp"], "run.ensembles": ["ms"]}
    start.write_bytes(b"first")
    before = resolved(tmp_path, changes)
    assert not [name for name, content in before.items() if "weights" in content]
    changes |= {"datasets.parts.recipe.backbone.checkpoint": str(start)}
    first = resolved(tmp_path, changes)
    start.write_bytes(b"second")
    second = resolved(tmp_path, changes)
    folds = {f"train_fold/parts/ms/{fold}.json" for fold in range(1, 5)}
    trained = {"train/parts/ms.json", "train/parts/gsp.json", "sweep/parts/gsp.json", *folds}
    assert {name for name in second if first[name] != second[name]} == trained
    sha256 = hashlib.sha256(b"second").hexdigest()
    assert all(second[name]["weights"] == {str(start): sha256} for name in trained)

    path = path_of("train", "parts", "ms")
    write_json(path, second["train/parts/ms.json"] | {"code": {}})
    assert read_inputs(TrainInputs, "train", "parts", "ms").weights == {str(start): sha256}
    start.write_bytes(b"third")
    with pytest.raises(UserError, match=r"start\.safetensors is not the file of weights that stage"):
        read_inputs(TrainInputs, "train", "parts", "ms")


ANALYSES = {f"analyze/parts/{method}.json" for method in ("ms", "gsp", "crt", "multihead", "irt_r")}


@pytest.mark.slow
def test_every_cell_has_its_files_and_they_can_be_read(tmp_path: Path) -> None:
    content = resolved(tmp_path, {"run.ensembles": ["ms"], "run.methods": ["ms", "gsp"]})
    assert set(content) == {
        "ingest/parts.json",
        *(
            f"{stage}/parts/{method}.json"
            for stage in ("train", "export", "evaluate", "analyze")
            for method in ("ms", "gsp")
        ),
        "sweep/parts/gsp.json",
        *(f"{stage}/parts/ms/{fold}.json" for stage in ("train_fold", "export_fold") for fold in range(1, 5)),
        "ensemble/parts/ms.json",
        "report.json",
    }
    for name, value in content.items():
        write_json(tmp_path / "file.json", value)
        model = MODELS[name.partition("/")[0].removesuffix(".json")]
        inputs = parse_inputs(model, (tmp_path / "file.json").read_text(encoding="utf-8"), name)
        assert inputs.settings.model_dump(mode="json") == value["settings"]
    params = project(tmp_path)
    train = TrainInputs.parse(content["train/parts/gsp.json"]["settings"])
    assert train.recipe == resolve(params, "parts", "gsp")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {
                "train.workers": 2,
                "train.loader_threads": 7,
                "train.checkpoint_every": 9,
            },
            set(),
        ),
        ({"export.workers": 3, "sweep.gsp.concurrent": 2}, set()),
        ({"methods.gsp.pooling.epsilon": 1.0}, {"train/parts/gsp.json", "sweep/parts/gsp.json"}),
        (
            {
                "methods.contrastive.dim": 7,
                "datasets.cub.recipe.dim": 7,
                "sweep.ms": {"space": {"dim": {"grid": [8]}}},
            },
            set(),
        ),
        # the report contains the number of parameters
        ({"datasets.parts.methods.ms.dim": 128}, {"train/parts/ms.json", "report.json"}),
        ({"ingest.quality": 90}, {"ingest/parts.json"}),
        # the analysis replays the positions of the creatures
        ({"datasets.parts.source.seed": 1}, {"ingest/parts.json", *ANALYSES}),
        (
            {"evaluate.confidence": 0.9},
            ANALYSES
            | {f"evaluate/parts/{method}.json" for method in ("ms", "gsp", "crt", "multihead", "irt_r")},
        ),
        ({"report.queries": 3}, {"report.json"}),
        ({"analyze.pairs": 3, "analyze.bootstrap": 7}, ANALYSES),
        ({"run.seeds": [0, 1]}, {"report.json"}),
        ({"datasets.parts.methods.gsp.pooling.transport_ratio": 0.6}, {"train/parts/gsp.json"}),
    ],
    ids=lambda value: " ".join(sorted(value)) if isinstance(value, dict) else "",
)
def test_a_change_changes_the_files_of_dependent_stages(
    tmp_path: Path, changes: dict[str, Any], expected: set[str]
) -> None:
    """The last case: adopting the best value of a swept field does not repeat the search."""
    assert changed(tmp_path, changes) == expected


@pytest.mark.slow
def test_a_sweep_runs_on_its_data_sets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes = {"run.datasets": ["cifar100"], "run.methods": ["ms"]}
    content = resolved(tmp_path, changes)
    assert content["sweep/cifar100/gsp.json"]["settings"]["trials"] == []
    assert content["report.json"]["settings"]["sweeps"] == []
    assert "-S '++sweep.gsp.datasets=[cifar100]'" in capsys.readouterr().err
    files = resolved(tmp_path, changes | {"sweep.gsp.datasets": None})
    assert len(files["sweep/cifar100/gsp.json"]["settings"]["trials"]) == 3
    assert files["report.json"]["settings"]["sweeps"] == [["cifar100", "gsp"]]


@pytest.mark.slow
def test_a_variant_is_a_separate_method(tmp_path: Path) -> None:
    variant = {
        "methods.gsp-soft": {"like": "gsp", "pooling": {"epsilon": 1.0}},
        "run.methods": ["gsp", "gsp-soft"],
    }
    content = resolved(tmp_path, variant)
    gsp, soft = (content[f"train/parts/{name}.json"]["settings"]["recipe"] for name in ("gsp", "gsp-soft"))
    assert (gsp["pooling"].pop("epsilon"), soft["pooling"].pop("epsilon")) == (5.0, 1.0)
    assert gsp == soft
    costs = content["report.json"]["settings"]["costs"]["parts"]
    assert costs["gsp"] == costs["gsp-soft"]
    assert costs["gsp"]["parameters"] > 0 < costs["gsp"]["flops"]
    assert content["report.json"]["settings"]["like"] == {"gsp": "gsp", "gsp-soft": "gsp"}
    assert changed(tmp_path, {"methods.gsp-soft.pooling.epsilon": 2.0}, variant) == {
        "train/parts/gsp-soft.json"
    }


@pytest.mark.slow
def test_a_new_loss_in_a_recipe_changes_its_code(tmp_path: Path) -> None:
    original, changed_loss = unchanged(tmp_path), resolved(tmp_path, {"methods.ms.loss": {"name": "snca"}})
    codes = [set(content["train/parts/ms.json"]["code"]) for content in (original, changed_loss)]
    assert "unseen.losses.multi_similarity" in codes[0] - codes[1]
    assert "unseen.losses.snca" in codes[1]


def test_a_row_of_irt_figure_5_has_the_reductions_of_two_studies(tmp_path: Path) -> None:
    methods = {entry.label: entry.method for entry in entries(study_of("irt-figure-5"))}
    axes = {"run.datasets": ["landmarks", "parts"], "run.methods": list(methods.values()), "run.sweeps": []}
    run = plan(project(tmp_path, axes))
    evaluate, analyze = with_reductions(run, "landmarks", methods["IRT_R"])
    assert evaluate.reduce == Reduce(dim=128)  # table 2
    assert analyze.reduce == Reduce(dim=256)
    assert [block.reduce for block in with_reductions(run, "parts", methods["IRT_R"])] == [None, None]
