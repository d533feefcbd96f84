"""A sample of the campaign of remedies, and its table."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from tests.torture.remedies import Message, campaign, commands, printed
from tests.torture.remedy_table import SITUATIONS, TABLE, entry_of
from tests.torture.results import ROOT, load
from tools.docs.reliability import page

_SEALED = "pipeline/runtime/sealed.py: Run `unseen doctor"
SAMPLE = [name for name in SITUATIONS if name.startswith(_SEALED)][:1]


def test_every_message_with_a_command_has_an_entry() -> None:
    used = [entry_of(message) for message in printed()]
    assert all(each in used for each in TABLE)
    with pytest.raises(ValueError, match="0 entries of pipeline/new"):
        entry_of(Message("pipeline/new.py", "Run `dvc repro`."))


def test_collects_messages_and_no_documentation(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b.py").write_text(
        '"""Run `dvc repro`."""\n@option(help="Run `dvc repro`.")\ndef f(path):\n    """Run `dvc repro`."""\n'
        '    g(f"Remove it: rm -r {path}", help="`unseen run`")\n'
        '    return "unseen" + "Run " "`unseen run`."\n'
    )
    assert printed(["a"], tmp_path) == [
        Message("a/b.py", "Remove it: rm -r {}"),
        Message("a/b.py", "unseenRun `unseen run`."),
    ]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Run `dvc checkout`, or `dvc repro`, as in `params.yaml`.", [["dvc checkout"], ["dvc repro"]]),
        ("Run `unseen clean`, then `dvc repro`.", [["unseen clean", "dvc repro"]]),
        ("Restore it: rm -r x && dvc checkout x", [["rm -r x && dvc checkout x"]]),
        ("Next:\n  cd x\n  unseen run", [["cd x", "unseen run"]]),
        ("Read `unseen index PHOTOS x`.", [["unseen index photos x"]]),
    ],
)
def test_the_commands_of_a_message(message: str, expected: list[list[str]]) -> None:
    assert commands(message, {"PHOTOS": "photos"}) == expected


def test_the_extras_that_messages_install_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    install = re.compile(r"pip install '(?:unseen|\.)\[(\w+)\]'")
    extras = {extra for message in printed() for extra in install.findall(message.text)}
    assert {"lite0", "onnx", "optuna", "serve"} <= extras <= set(project["optional-dependencies"])


@pytest.mark.slow
@pytest.mark.graph
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_the_remedies_of_a_sample_repair(tmp_path: Path) -> None:
    campaign(SAMPLE, tmp_path / "remedies.json")
    results = load(tmp_path / "remedies.json")
    assert {name: result["violations"] for name, result in results.items() if "executed" in result} == {
        name: [] for name in SAMPLE
    }
    assert "1 situations, 1 remedies executed, 0 violations" in page(tmp_path)
