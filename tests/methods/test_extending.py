"""docs/extending.md does what it says: applied to a copy of the package, its loss and its pooling pass the tests of all parts, and train."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dvc.utils.hydra import apply_overrides

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
NEEDED = ("tests/methods/small.py", "tests/methods/test_every_part.py", "pyproject.toml", "params.yaml", "docs/library.md")
TRAINS = '''
"""What the commands of the page ask for is built, and takes two steps."""

from pathlib import Path

import pytest
import torch

import pipeline
from pipeline.config import Params, RunSettings, resolve, settings
from pipeline.losses.info_nce import InfoNce
from pipeline.data.loader import TrainBatch
from pipeline.methods.build import initial_method
from pipeline.pooling.log_mean_exp import LogMeanExp
from pipeline.runtime.errors import UserError
from pipeline.training.optimizer import build_optimizer
from pipeline.training.step import Learner, train_step

ROOT = Path(__file__).resolve().parent


@pytest.mark.parametrize("number", range(COMMANDS))
def test_a_command_of_the_page_trains(number: int) -> None:
    assert Path(pipeline.__file__).parents[1] == ROOT
    params = Params(ROOT / f"params{number}.yaml")
    (method,) = settings(params, "run", RunSettings).methods
    recipe = resolve(params, "parts", method)
    module = initial_method(recipe, 12, 60, seed=0).train()
    assert isinstance(module.loss.pair, InfoNce)
    assert isinstance(module.head.pooling, LogMeanExp) is (method == "mine")
    assert (module.loss.memory is None) is (method == "mine")
    learner = Learner(module, build_optimizer(recipe.optimizer, module.parameter_groups(), torch.device("cpu")), recipe, 0)
    size, side = recipe.batch.size, recipe.input.size
    images = torch.randint(0, 256, (size, 3, side, side), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    labels = torch.arange(size) // recipe.batch.images_per_class
    for step in range(2):
        done = train_step(learner, TrainBatch(step, images, labels, torch.arange(size)))
        assert done.loss > 0
        assert done.gradient_norm > 0


def test_a_typing_error_is_met_with_its_name() -> None:
    with pytest.raises(UserError, match="Did you mean info_nce"):
        resolve(Params(ROOT / "params0.yaml"), "parts", "ms", {"loss.name": "info_nc"})
'''


def blocks() -> list[tuple[str, str, str]]:
    """Language, file and text of each block. The file is the last one that is named before it; of commands there is none."""
    found, path = [], ""
    for match in re.finditer(r"`([\w/]+\.(?:py|md))`|^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        path = match[1] or path
        if match[2]:
            found.append((match[2], path, match[3]))
    return found


def commands() -> list[str]:
    return [line for language, _, text in blocks() if language == "bash" for line in text.splitlines()]


def apply(root: Path) -> None:
    """Writes the new files of the page below `root`, and makes its changes to those that are there."""
    for language, path, text in blocks():
        if language == "python":
            assert not (ROOT / path).exists(), f"{path} is there already"
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        elif language == "diff":
            lines = text.splitlines(keepends=True)
            before, after = ("".join(line[1:] or "\n" for line in lines if line[0] not in sign) for sign in ("+", "-"))
            content = (root / path).read_text(encoding="utf-8")
            assert content.count(before) == 1, f"{path} does not hold what the page changes:\n{before}"
            (root / path).write_text(content.replace(before, after), encoding="utf-8")


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with what the page adds."""
    root = tmp_path_factory.mktemp("extended")
    shutil.copytree(ROOT / "pipeline", root / "pipeline")
    for name in NEEDED:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, root / name)
    apply(root)
    return root


def test_the_library_gets_a_row_for_each_part(extended: Path) -> None:
    library = (extended / "docs/library.md").read_text(encoding="utf-8")
    for name in ("info_nce", "log_mean_exp"):
        assert library.count(f"\n| `{name}` |") == 1


def test_every_file_that_the_page_names_is_there(extended: Path) -> None:
    named = set(re.findall(r"`((?:pipeline|tests|docs)/[\w/]+\.(?:py|md))`", PAGE))
    assert len(named) > 15
    assert [name for name in sorted(named) if not (extended / name).exists() and not (ROOT / name).exists()] == []


def test_what_the_page_adds_is_a_part_like_any_other(extended: Path) -> None:
    for number, command in enumerate(commands()):
        shutil.copy2(ROOT / "params.yaml", extended / f"params{number}.yaml")
        apply_overrides(extended / f"params{number}.yaml", re.findall(r"-S '([^']*)'", command))
    (extended / "test_training.py").write_text(TRAINS.replace("COMMANDS", str(len(commands()))), encoding="utf-8")
    checked = "--jaxtyping-packages=pipeline.losses,pipeline.pooling,beartype.beartype"  # where the page adds a module: all would take twice as long
    asked = "info_nce or log_mean_exp or has_a_module or test_training"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", "-o", f"addopts={checked}", "-k", asked, "tests", "test_training.py"],
        cwd=extended,
        env={**os.environ, "PYTHONPATH": str(extended)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = int(re.search(r"(\d+) passed", done.stdout)[1])
    assert passed >= 30, done.stdout


def test_what_the_page_adds_is_in_the_style_of_the_house(extended: Path) -> None:
    files = [path for language, path, _ in blocks() if language in ("python", "diff") and path.endswith(".py")]
    for command in (("check",), ("format", "--check")):
        arguments = [sys.executable, "-m", "ruff", *command, "--no-cache", *dict.fromkeys(files)]
        done = subprocess.run(arguments, cwd=extended, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
