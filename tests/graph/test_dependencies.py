"""dvc.yaml agrees with the code: each stage is a script with its name and depends on its own resolved
file."""

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from unseen.config.inputs import MODELS, path_of

ROOT = Path(__file__).resolve().parents[2]
STAGES = YAML(typ="safe").load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]


@pytest.mark.parametrize("stage", sorted(STAGES))
def test_a_stage_is_a_script_with_its_name_and_axes(stage: str) -> None:
    axes = list(STAGES[stage].get("matrix", {}))
    command = f"exec env OMP_WAIT_POLICY=passive UNSEEN_PARENT=$PPID python -m unseen.stages.{stage}"
    assert STAGES[stage]["cmd"] == " ".join([command, *(f"${{item.{axis}}}" for axis in axes)])
    text = (ROOT / "stages" / f"{stage}.py").read_text(encoding="utf-8")
    called = re.search(r"^    main\(run((?:, \"\w+\")*)\)$", text, re.MULTILINE)
    assert called is not None
    assert re.findall(r'"(\w+)"', called.group(1)) == axes


@pytest.mark.parametrize("stage", sorted(MODELS))
def test_a_stage_depends_on_the_resolved_file_that_it_reads(stage: str) -> None:
    axes = [axis for axis in STAGES[stage].get("matrix", {}) if axis != "seed"]
    expected = path_of(stage, *(f"${{item.{axis}}}" for axis in axes)).as_posix()
    resolved = [dep for dep in STAGES[stage]["deps"] if dep.startswith("data/resolved")]
    assert resolved == [expected]
    call = rf'read_inputs\({MODELS[stage].__name__}, "{stage}"{"".join(f", {axis}" for axis in axes)}\)'
    assert re.search(call, (ROOT / "stages" / f"{stage}.py").read_text(encoding="utf-8"))


def test_only_resolve_depends_on_code_and_params() -> None:
    for name, stage in STAGES.items():
        code = [dep for dep in stage["deps"] if not dep.startswith("data/")]
        assert (code, "params" in stage) == (
            (["pipeline", "stages", "parts", "studies"], True) if name == "resolve" else ([], False)
        ), name
    assert set(STAGES) == {"resolve", *MODELS}
