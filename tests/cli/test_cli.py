"""The command `unseen`: its subcommands and its errors."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from click.shell_completion import ShellComplete

import unseen
from tests.params import resolve
from unseen import __version__
from unseen.cli import main as cli
from unseen.cli.at_revision import AtRevision
from unseen.cli.commands.environment import SHELLS
from unseen.cli.recipe import difference, recipe
from unseen.config.document import Params
from unseen.config.inputs import Inputs, TrainInputs
from unseen.experiments.plan.modules import modules_of
from unseen.runtime.code import code_of
from unseen.runtime.errors import UserError
from unseen.runtime.stage import PACKAGE, ROOT
from unseen_search.catalog import Catalog


@pytest.mark.slow
def test_a_recipe_shows_every_value_and_the_line_that_sets_it(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["recipe", "parts", "gsp"])
    lines = capsys.readouterr().out.splitlines()
    (ratio,) = [line for line in lines if line.strip().startswith("transport_ratio:")]
    assert ratio.split()[1] == "0.3"
    file, _, number = ratio.split()[2].partition(":")
    assert "transport_ratio: 0.3" in Path(file).read_text(encoding="utf-8").splitlines()[int(number) - 1]
    fields = resolve(Params(), "parts", "gsp").model_dump(mode="json")
    assert len([line for line in lines if not line.startswith(" ")]) == len(fields)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["recipe", "parts", "gps"], 1, "Did you mean gsp?"),
        (["run", "--ship"], 2, "unseen ladder PHOTOS OUTPUT --ship"),
        (["recipes"], 2, "No such command 'recipes'"),
    ],
)
def test_a_mistake_gives_a_message_and_a_status(arguments: list[str], status: int, message: str) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "unseen", *arguments], capture_output=True, text=True, check=False
    )
    assert process.returncode == status
    assert message in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize(("given", "expected"), [(None, "passive"), ("active", "active")])
def test_waiting_threads_do_not_spin_unless_the_user_asks_for_it(
    given: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if given is not None:
        monkeypatch.setenv("OMP_WAIT_POLICY", given)
    cli.main(["--version"])
    assert os.environ["OMP_WAIT_POLICY"] == expected


@pytest.mark.parametrize(
    ("command", "words"), [("run", "unseen ladder PHOTOS OUTPUT --ship"), ("ladder", "--ship")]
)
def test_the_help_names_the_model_of_all_labelled_classes(
    command: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main([command, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert words in text
    assert "all labelled classes" in text


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["data", "cubs"], 1, "Unknown published data set 'cubs'"),
        (["run", "-j", "0"], 2, "0 is not in the range x>=1"),
        (["recipe", "parts", "gsp", "--diff", "x", "y"], 2, "unexpected extra argument (y)"),
        (["recipe", "parts", "gsp", "--diff", "nowhere"], 1, "Unknown git revision nowhere."),
        (["diff", "nowhere"], 1, "Unknown git revision nowhere."),
        (["clean", "--clone", "nowhere"], 1, "nowhere"),
        (["lock"], 1, "is a clone"),
        (["find", "catalog"], 1, "There is no photo to search for"),
        (["find", "catalog", "x", "--at-most-false", "2"], 2, "'2' is not a share between 0 and 1"),
        (["find", "catalog", "x", "--at-most-false", "x%"], 2, "'x%' is not a share between 0 and 1"),
        (["find", "nowhere", "new.jpg"], 1, "unseen index PHOTOS nowhere`"),
    ],
)
def test_every_kind_of_mistake_is_named(
    arguments: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == status
    printed = capsys.readouterr().err
    assert message in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize(
    ("arguments", "call"),
    [
        (["run", "-f", "train@parts-ms-0"], (("-f", "train@parts-ms-0"), None)),
        (["run", "-j", "4", "report"], (("report",), 4)),
    ],
)
def test_run_passes_its_arguments(
    arguments: list[str], call: tuple[tuple[str, ...], int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr("unseen.cli.run.run", lambda *values: calls.append(values) or 3)
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 3
    assert calls == [call]


@pytest.mark.parametrize(
    ("arguments", "place"), [(["data", "cub"], "data/raw/cub"), (["data", "cub", "there"], "there")]
)
def test_data_are_fetched_into_the_directory(
    arguments: list[str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, str]] = []
    monkeypatch.setattr("unseen.data.ingest.files.download.fetch", lambda *call: calls.append(call))
    cli.main(arguments)
    assert calls == [("cub", place)]


@pytest.mark.slow
def test_a_difference_lists_values_and_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    now = resolve(Params(), "parts", "gsp")
    code = code_of(PACKAGE).closure(["unseen.stages.train", *modules_of(now)])
    changed = code | {"unseen.losses.pairs": "another", "unseen.gone": "0"}
    before = Inputs(TrainInputs(recipe=now.model_copy(update={"dim": 3})), changed)
    monkeypatch.setattr("unseen.cli.recipe._at_revision", lambda *_: before)
    expected = [f"dim: 3 -> {now.dim}", "code: unseen.gone", "code: unseen.losses.pairs"]
    assert difference("parts", "gsp", "HEAD").splitlines() == expected


def test_a_resolved_file_of_a_revision_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AtRevision, "__init__", lambda *_: None)
    monkeypatch.setattr(AtRevision, "read", lambda *_: b'{"settings": {"recipe": 1}, "code": {}}')
    with pytest.raises(UserError, match=r"data/resolved/train/parts/gsp\.json of v1"):
        difference("parts", "gsp", "v1")


def test_an_interrupt_ends_a_command_with_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unseen.cli.run.run", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(SystemExit) as ended:
        cli.main(["run"])
    assert ended.value.code == 130


def test_help_imports_no_library_of_the_graph() -> None:
    code = "import sys; from unseen.cli import main as cli; cli.main(['--help']); print(*sys.modules)"
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    loaded = {name.partition(".")[0] for name in printed[-1].split()}
    assert not loaded & {"torch", "faiss", "numpy", "pyarrow", "ray", "dvc", "pydantic"}
    for command in ("run", "recipe", "data", "index", "find", "serve", "evaluate", "doctor", "completion"):
        assert any(line.startswith(f"  {command} ") for line in printed), command


def test_every_option_of_an_example_exists() -> None:
    """Each line of the examples is parsed, and not executed."""
    for command in cli.command.commands.values():
        lines = [line.strip() for line in getattr(command, "examples", "").splitlines()]
        for line in filter(None, lines):
            typed = shlex.split(re.sub(r"^UNSEEN_TOKEN=\S+ |\s{3,}.*$", "", line))
            if "completion" not in typed and typed[:2] != ["eval", "$(unseen completion bash)"]:
                program, name, *arguments = typed
                assert program == "unseen"
                cli.command.commands[name].make_context(name, arguments)


@pytest.mark.parametrize("shell", SHELLS)
def test_prints_the_completion_of_a_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["completion", shell])
    assert f"_UNSEEN_COMPLETE={shell}_complete" in capsys.readouterr().out


def test_completes_commands_data_sets_and_methods() -> None:
    def completed(words: str) -> list[str]:
        return [
            item.value
            for item in ShellComplete(cli.command, {}, "unseen", "_").get_completions(
                words.split()[1:-1], words.split()[-1].strip("|")
            )
        ]

    assert completed("unseen rec|") == ["recipe"]
    assert completed("unseen recipe cu|") == ["cub"]
    assert completed("unseen recipe cub gsp_x|") == ["gsp_xbm"]
    assert completed("unseen study gsp-table-|") == ["gsp-table-1", "gsp-table-2"]
    assert "test_resnet.r160_in1k" in completed("unseen ladder --network test_resn|")


def test_public_names_are_those_of_the_implementation() -> None:
    assert set(unseen.__all__) <= set(dir(unseen))
    for name in unseen.__all__:
        assert getattr(unseen, name) is not None
    assert unseen.Catalog is Catalog
    unknown = "catalogue"
    with pytest.raises(AttributeError, match=f"no attribute {unknown!r}"):
        getattr(unseen, unknown)
    for package in ("pipeline", "unseen_search", "dvc_parallel"):
        assert (ROOT / package / "py.typed").is_file()


@pytest.mark.slow
def test_the_version_equals_that_of_the_distribution() -> None:
    assert __version__.count(".") == 2
    assert "default" in recipe(Params(), "parts", "ms")


@pytest.mark.slow
def test_commands_refuse_a_limit_of_memory_below_the_needs_of_the_libraries() -> None:
    program = (
        "import resource, sys\n"
        "from unseen.cli.main import COMPUTING, command, main\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (400 * 2**20, 400 * 2**20))\n"
        "files = {'find': ['a', 'b'], 'index': ['a', 'b'], 'evaluate': ['a'], 'ladder': ['a', 'b']}\n"
        "for name, arguments in files.items():\n"
        "    assert command.commands[name] in COMPUTING\n"
        "    try:\n"
        "        main([name, *arguments])\n"
        "    except SystemExit as end:\n"
        "        assert end.code == 1\n"
        "assert 'torch' not in sys.modules\n"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert process.stderr.count("error: The limit of this process is 419,430,400 bytes (`ulimit -d`)") == 4
