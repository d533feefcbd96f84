"""A result belongs to the code that its cases execute."""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.torture import clusters, resizes, results
from tests.torture.kills import MODULES as KILLS
from tests.torture.operations import OPERATIONS
from tests.torture.readers import MODULES as READERS
from tests.torture.results import current, load, record, save, version


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A project in which `used` imports `indirect`, and nothing imports `other`."""
    (tmp_path / "pipeline").mkdir()
    modules = {"__init__": "", "used": "from unseen import indirect\n", "indirect": "X = 1\n", "other": ""}
    for name, text in modules.items():
        (tmp_path / f"pipeline/{name}.py").write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "text", "keeps"),
    [
        ("other", "Y = 2\n", True),
        ("indirect", "X = 1  # the same\n", True),
        ("indirect", "X = 2\n", False),
        ("used", "from unseen import indirect, other\n", False),
    ],
)
def test_only_a_change_of_executed_code_discards_a_result(
    code: Path, name: str, text: str, keeps: bool
) -> None:
    results._code.cache_clear()
    before = version(["unseen.used"], code)
    (code / f"pipeline/{name}.py").write_text(text, encoding="utf-8")
    results._code.cache_clear()
    assert (version(["unseen.used"], code) == before) is keeps


def test_a_result_of_other_code_is_discarded(tmp_path: Path) -> None:
    content = {"images": {"digest": "0", "commit": "abc", "read": 5}}
    save(tmp_path / "x.json", content)
    result = current(load(tmp_path / "x.json"), "images", ["unseen.runtime.files"])
    assert "read" not in result
    result["read"] = 1
    assert current({"images": result}, "images", ["unseen.runtime.files"]) is result


def test_keeps_the_rows_that_another_process_wrote_in_the_meantime(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    before = load(path)
    record(path, "images", {"read": 5})
    record(path, "archives", before.get("archives", {}) | {"read": 2})
    record(path, "images", {"read": 6})
    assert load(path) == {"images": {"read": 6}, "archives": {"read": 2}}


def test_every_stage_has_faults_and_kills() -> None:
    stages = set(YAML(typ="safe").load((results.ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"])
    failing = {module for operation in OPERATIONS for module in operation.modules}
    assert {f"unseen.stages.{stage}" for stage in stages} <= failing
    assert stages <= {command.partition("@")[0] for command in KILLS}


@pytest.mark.slow
def test_the_code_of_every_campaign_exists() -> None:
    operations = {operation.name: operation.modules for operation in OPERATIONS}
    of_clusters = (clusters.MODULES, resizes.MODULES)
    for modules in (*KILLS.values(), *READERS.values(), *operations.values(), *of_clusters):
        assert len(version(modules)) == 16
