"""Applies docs/extending.md to a copy of the project: all additions pass their tests and train."""

import ast
import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from dvc.utils.hydra import apply_overrides

from tests.copies import copy_code

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
COPIED = ("docs", "tests/report", "tests/device")
NEEDED = (
    *("pyproject.toml", "params.yaml", "dvc.yaml", "tests/params.py"),
    *("tests/methods/small.py", "tests/methods/test_every_part.py", "tests/graph/test_dependencies.py"),
    "tests/training/workers.py",
)
TRAINS = '''
"""The recipes of the page's commands, and its network and method, train for two steps."""

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch

import unseen
from tests.params import resolve
from unseen.config.definitions import Definitions
from unseen.config.document import Params
from unseen.config.resolve import dataset_settings, settings
from unseen.config.stages import ReportSettings, RunSettings
from unseen.data.embeddings import write
from unseen.data.ingest.ingest import ingest
from unseen.data.sampler import make_sampler
from unseen.data.shards import Shards
from unseen.evaluation.run import evaluate_run
from unseen.evaluation.settings import EvaluateBlock, EvaluateSettings
from unseen.methods.compatibility import require_compatible
from unseen.methods.settings import Recipe
from unseen.losses.settings import Loss
from unseen.poolings.settings import Pooling
from unseen.data.loader import TrainBatch, TrainLoader
from unseen.losses.info_nce import InfoNce
from unseen.methods.build import initial_method
from tools.docs.library import members
from unseen.methods.method import Method
from unseen.poolings.log_mean_exp import LogMeanExp
from unseen.report.page import OwnSection, template_environment
from unseen.report.pictures import Pictures
from unseen.runtime.errors import UserError
from unseen.training.optimizer import build_optimizer
from unseen.training.precision import with_effective_precision
from unseen.training.step import Learner, train_step

ROOT = Path(__file__).resolve().parent
PARAMS = Params(ROOT / "params.yaml")
FORKLESS = (ROOT / "without_a_fork.yaml").read_text(encoding="utf-8")


def trained(recipe: Recipe) -> Method:
    """The method after two steps."""
    recipe = with_effective_precision(recipe, torch.device("cpu"))
    method = initial_method(recipe, 12, 60, seed=0).train()
    optimizer = build_optimizer(recipe.optimizer, method.parameter_groups(), torch.device("cpu"))
    learner = Learner(method, optimizer, recipe, 0)
    size, side = recipe.batch.size, recipe.input.size
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (size, 3, side, side), generator=generator).to(torch.uint8)
    labels = torch.arange(size) // recipe.batch.images_per_class
    for step in range(2):
        done = train_step(learner, TrainBatch(step, images, labels, torch.arange(size))).result()
        assert done.loss > 0
        assert done.gradient_norm > 0
    return method


@pytest.mark.parametrize("number", range(COMMANDS))
def test_a_command_of_the_page_trains(number: int) -> None:
    assert Path(unseen.__file__).parents[1] == ROOT
    params = Params(ROOT / f"params{number}.yaml")
    (name,) = settings(params, "run", RunSettings).methods
    method = trained(resolve(params, "parts", name))
    assert isinstance(method.loss.pair, InfoNce)
    assert isinstance(method.head.pooling, LogMeanExp) is (name == "mine")
    assert (method.loss.memory is None) is (name == "mine")


def test_the_method_of_the_page_trains_with_its_network() -> None:
    method = trained(resolve(PARAMS, "parts", "compact", {"backbone.name": "conv4"}))
    assert (type(method).__name__, type(method.backbone.network).__name__) == ("Compact", "Conv4")


def test_the_recipes_of_the_page_resolve() -> None:
    assert resolve(PARAMS, "flowers17", "ms").batch.size == 56
    assert resolve(PARAMS, "cub", "compact").compactness_weight == 0.1


def test_the_project_with_parts_of_each_kind(tmp_path: Path) -> None:
    params = Params(text=FORKLESS)
    known = Definitions(params)
    source, ingest_settings = dataset_settings(known, "digits")
    assert source.path == "data/raw/digits"
    rows = np.arange(48)
    images = np.random.default_rng(0).integers(0, 256, (48, 40, 40, 3), np.uint8)
    np.savez(tmp_path / "digits.npz", images=images, labels=rows // 6)
    source = source.model_copy(update={"path": str(tmp_path)})
    ingest(source, ingest_settings, tmp_path / "shards", "digits", 1)
    shards = Shards(tmp_path / "shards")
    recipe = with_effective_precision(known.layers("digits", "circle").recipe(), torch.device("cpu"))
    require_compatible(recipe)
    train = shards.rows("train")
    labels = shards.labels[train]
    method = initial_method(recipe, 4, len(train), seed=0).train()
    optimizer = build_optimizer(recipe.optimizer, method.parameter_groups(), torch.device("cpu"))
    learner = Learner(method, optimizer, recipe, 0)
    loader = TrainLoader(shards, train, labels, make_sampler(labels, recipe.batch, 0), recipe.input)
    batches = list(loader.iterate(0, 3))
    assert [batch.samples.tolist() for batch in batches[:2]] == [[*range(8)], [*range(8, 16)]]
    assert all(train_step(learner, batch).result().loss > 0 for batch in batches)
    parts = (method.loss.pair, method.head.pooling, method.backbone.network)
    assert [type(part).__name__ for part in parts] == ["Circle", "Median", "Small"]
    test = shards.rows("test")
    images = torch.randn(len(test), 3, 32, 32)
    embedding = method.eval().embed(images).detach().numpy()
    for name in ("", "-last", "-untrained", "-features"):
        write(tmp_path / f"test{name}.arrow", test, shards.labels[test], embedding)
    block = settings(params, "evaluate", EvaluateBlock)
    evaluation = evaluate_run(tmp_path, EvaluateSettings(**dict(block) | {"recall_at": (1,)}))
    first = evaluation.queries["selected"]["first_positive"].to_numpy()
    assert evaluation.metrics["reciprocal_rank"] == pytest.approx((1 / first).mean())
    section = settings(params, "report", ReportSettings).sections["means"]
    assert (section.metric, section.CARD) == ("reciprocal_rank", "results")
    run = Mock(queries=evaluation.queries["selected"])
    birds = Mock(methods=[Mock()], runs=lambda name: [run])
    ((_, mean),) = OwnSection(section).content(birds)["rows"]
    assert float(mean) == pytest.approx((1 / first).mean(), rel=1e-2)
    OwnSection(section).template(template_environment(Pictures()))


def test_the_method_without_a_fork_trains() -> None:
    method = trained(resolve(Params(text=FORKLESS), "parts", "spread"))
    assert (type(method).__name__, method.weight) == ("Spread", 0.5)


def test_the_lists_of_the_library_contain_the_parts() -> None:
    names = {part.model_fields["name"].default for part in members(Loss, Pooling)}
    assert {"info_nce", "log_mean_exp"} <= names


def test_a_misspelt_name_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(UserError, match="Did you mean info_nce"):
        resolve(Params(ROOT / "params0.yaml"), "parts", "ms", {"loss.name": "info_nc"})
'''


def blocks() -> list[tuple[str, str, str]]:
    """Language, file and text of each block. The file is the last one that the text names before it; commands
    have no file."""
    listed, path = [], ""
    for match in re.finditer(
        r"`([\w/]+\.(?:py|md|yaml|html))`|^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
    ):
        path = match[1] or path
        if match[2]:
            listed.append((match[2], path, match[3]))
    return listed


def commands() -> list[str]:
    text = "".join(text for language, _, text in blocks() if language == "bash")
    return re.sub(r" \\\n *", " ", text).splitlines()


def added(language: str) -> list[str]:
    """The files that the blocks of a language write."""
    return [path for block_language, path, _ in blocks() if block_language == language]


def apply(root: Path) -> None:
    """Writes the new files of the page below `root` and applies its changes to existing files."""
    for language, path, text in blocks():
        if language in ("python", "yaml", "html"):
            assert not (ROOT / path).exists(), f"{path} exists already"
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        elif language == "diff":
            lines = text.splitlines(keepends=True)
            old_text, new_text = (
                "".join(line[1:] or "\n" for line in lines if line[0] not in sign) for sign in ("+", "-")
            )
            content = (root / path).read_text(encoding="utf-8")
            assert content.count(old_text) == 1, f"{path} does not contain what the page changes:\n{old_text}"
            (root / path).write_text(content.replace(old_text, new_text), encoding="utf-8")


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with the additions of the page."""
    root = tmp_path_factory.mktemp("extended")
    copy_code(root)
    for name in COPIED:
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in NEEDED:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, root / name)
    apply(root)
    return root


def test_every_file_that_the_page_names_exists(extended: Path) -> None:
    named = set(re.findall(r"`((?:pipeline|stages|tests|docs|tools)/[\w/]+\.(?:py|md|yaml))`", PAGE))
    assert len(named) > 30
    assert [
        name for name in sorted(named) if not (extended / name).exists() and not (ROOT / name).exists()
    ] == []


def test_additions_of_the_page_pass_their_tests_and_train(extended: Path) -> None:
    for number, command in enumerate(commands()):
        shutil.copy2(ROOT / "params.yaml", extended / f"params{number}.yaml")
        apply_overrides(extended / f"params{number}.yaml", re.findall(r"-S '([^']*)'", command))
    (extended / "test_training.py").write_text(
        TRAINS.replace("COMMANDS", str(len(commands()))), encoding="utf-8"
    )
    (without_a_fork,) = [text for language, _, text in blocks() if language == "yml"]
    (extended / "without_a_fork.yaml").write_text(f"{without_a_fork}ingest: {{}}\n", encoding="utf-8")
    own_tests = [path for path in added("python") if path.startswith("tests/")]
    assert len(own_tests) == 8
    # Shapes are checked only in packages to which the page adds a module.
    checked = "--jaxtyping-packages=unseen.losses,unseen.poolings,unseen.methods,beartype.beartype"
    selected = (
        f"info_nce or log_mean_exp or test_dependencies or test_training or every_section or "
        f"{' or '.join(Path(path).stem for path in own_tests)}"
    )
    shared = [
        "tests/methods/test_every_part.py",
        "tests/graph/test_dependencies.py",
        "tests/report/test_page.py",
        "test_training.py",
    ]
    command = [sys.executable, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider"]
    command += ["-o", f"addopts={checked}", "-k", selected, *own_tests, *shared]
    process = subprocess.run(
        command,
        cwd=extended,
        env={**os.environ, "PYTHONPATH": str(extended)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    passed_count = int(re.search(r"(\d+) passed", process.stdout)[1])
    assert passed_count >= 50, process.stdout


def test_parts_without_a_fork_import_stable_names_only() -> None:
    names = {
        (node.module, alias.name)
        for language, path, text in blocks()
        if language == "python" and path.startswith("parts/")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("unseen")
        for alias in node.names
    }
    assert len(names) > 10
    assert [name for name in names if name[1] not in import_module(name[0]).__all__] == []


def test_additions_of_the_page_pass_the_linters(extended: Path) -> None:
    files = [
        path for language, path, _ in blocks() if language in ("python", "diff") and path.endswith(".py")
    ]
    for command in (("check",), ("format", "--check")):
        arguments = [sys.executable, "-m", "ruff", *command, "--no-cache", *dict.fromkeys(files)]
        process = subprocess.run(arguments, cwd=extended, capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stdout + process.stderr
