"""The resources of a parallel run, from params.yaml."""

from pathlib import Path

import pytest

from unseen.cli.needs import needs, require_lists, slots
from unseen.config.document import Params
from unseen.runtime.errors import UserError
from unseen.runtime.stage import ROOT

TEXT = (ROOT / "params.yaml").read_text(encoding="utf-8")


def params(directory: Path, *changes: tuple[str, str]) -> Params:
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path = directory / "params.yaml"
    path.write_text(text, encoding="utf-8")
    return Params(path)


def test_only_stages_with_several_processes_need_ray_on_a_machine_without_gpus(tmp_path: Path) -> None:
    changes = (("workers: 1", "workers: 3"), ("concurrent: 1", "concurrent: 5"))
    needed = needs(params(tmp_path, *changes), gpus=0)
    stages = ["train@parts-ms-0", "sweep@parts-gsp", "export@parts-ms-0", "evaluate@parts-ms-0", "report"]
    assert [needed.of(stage) for stage in stages] == [3, 5, 0, 0, 0]
    members = ["train_fold@parts-ms-1-0", "export_fold@parts-ms-1-0", "ensemble@parts-ms"]
    assert [needed.of(stage) for stage in members] == [3, 0, 0]
    assert needed.highest == 5
    assert needs(params(tmp_path), gpus=0).highest == 0


def test_trainings_and_exports_on_one_worker_need_ray_where_stages_share_gpus(tmp_path: Path) -> None:
    for stage in ("export@parts-ms-0", "export_fold@parts-ms-1-0"):
        assert needs(params(tmp_path), gpus=2).of(stage) == 1
        assert needs(params(tmp_path, ("gpu: auto", "gpu: no")), gpus=2).of(stage) == 1  # of trainings
        assert needs(params(tmp_path), gpus=0).of(stage) == 0
    for stage in ("train@parts-ms-0", "sweep@parts-gsp"):
        assert needs(params(tmp_path), gpus=2).of(stage) == 1
        assert needs(params(tmp_path, ("gpu: auto", "gpu: no")), gpus=2).of(stage) == 0


@pytest.mark.parametrize(
    ("changes", "cpus", "gpus", "expected"),
    [
        ((), 64, 8, 8),
        ((("workers: 1", "workers: 3"),), 64, 8, 2),
        ((("workers: 1", "workers: 16"),), 64, 8, 1),
        ((("gpu: auto", "gpu: no"),), 64, 8, 32),
        ((("methods: {}", "methods: {crt: {training: {threads: 4}}}"),), 64, 0, 16),
        ((("workers: 1", "workers: 3"),), 64, 0, 10),
        ((), 1, 0, 1),
    ],
)
def test_a_cluster_has_one_slot_for_each_training_that_it_can_run(
    changes: tuple[tuple[str, str], ...],
    cpus: int,
    gpus: int,
    expected: int,
    tmp_path: Path,
) -> None:
    assert slots(params(tmp_path, *changes), cpus, gpus) == expected


def test_refuses_an_axis_without_brackets(tmp_path: Path) -> None:
    require_lists(params(tmp_path))
    changed = params(tmp_path, ("datasets:\n  - parts", "datasets: parts"))
    with pytest.raises(
        UserError, match=r"params.yaml:\d+: run.datasets is parts, which is not a list"
    ) as caught:
        require_lists(changed)
    assert "datasets: [parts]" in caught.value.remedy
    with pytest.raises(UserError, match=r"params.yaml:\d+: ensemble.folds is 4, which is not a list"):
        require_lists(params(tmp_path, ("folds:\n  - 1\n  - 2\n  - 3\n  - 4\n", "folds: 4\n")))
