"""The digest of code: changes that affect it, changes that do not, and the stages that a change affects."""

import ast
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.copies import copy_code
from tests.params import resolve
from unseen.config.document import Params
from unseen.config.recipe_files import published
from unseen.experiments.plan.modules import modules_of, position_modules_of
from unseen.runtime import code
from unseen.runtime.code import code_of, digest_of
from unseen.runtime.stage import PACKAGE, ROOT

SOURCE = '''
"""A module."""
import os

def scale(x: float, by: float = 2.0) -> float:
    """x times by."""
    # a comment
    return f"{x:>{by}} times" if os.sep else x * by
'''


def digest(text: str) -> str:
    return digest_of(ast.parse(text))


def test_the_packages_of_a_module_belong_to_its_code() -> None:
    """Package runtime does not, but its package device does."""
    closure = code_of(PACKAGE).closure(["unseen.losses.koleo"])
    used = {"unseen.runtime.device", "unseen.runtime.device.precision"}
    assert closure.keys() == {"unseen.losses", "unseen.losses.koleo", *used}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""A module."""', '"""Another text."""'),
        ("import os\n", "import os\nfrom unseen.methods.settings import Batch\n"),
        ("import os\n", "import os\nfrom unseen.runtime.errors import UserError\n"),
        ('"""x times by."""', ""),
        ("# a comment", "# other words"),
        ("(x: float, by: float = 2.0)", "(\n    x: float,\n    by: float = 2.0,\n)"),
        ("x * by", "(x * by)"),
        ('"{x:>{by}} times"', "'{x:>{by}} times'"),
    ],
)
def test_comments_and_formatting_do_not_change_the_digest(old: str, new: str) -> None:
    assert old in SOURCE
    assert digest(SOURCE.replace(old, new)) == digest(SOURCE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("2.0", "2.5"),
        ("x * by", "x + by"),
        ("import os", "import sys as os"),
        ("import os\n", "import os\nfrom unseen.data.shards import Shards\n"),
        (" times", " of"),
        ("2.0", "2"),
        (":>{", ":<{"),
    ],
)
def test_changed_code_changes_the_digest(old: str, new: str) -> None:
    assert digest(SOURCE.replace(old, new)) != digest(SOURCE)


def test_a_formatted_text_in_pieces_has_the_digest_of_one() -> None:
    """Versions of Python divide the text differently."""
    tree = ast.parse('f"{x}ab"')
    (text,) = (node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr))
    text.values = [ast.Constant(""), text.values[0], ast.Constant("a"), ast.Constant("b")]
    assert digest_of(tree) == digest('f"{x}ab"')


def test_a_module_that_is_neither_of_the_project_nor_installed_is_an_error() -> None:
    with pytest.raises(KeyError, match=r"no module no_such_module in .*pipeline"):
        code_of(PACKAGE).closure(["no_such_module"])


@pytest.mark.slow
@pytest.mark.parametrize("python", ["python3.11", "python3.12", "python3.13", "python3.14"])
def test_versions_of_python_give_equal_digests(python: str) -> None:
    """Computes the digest with each installed version; missing versions are skipped by name."""
    program = shutil.which(python)
    command = (
        "import json, runpy; from pathlib import Path; "
        f"code = runpy.run_path({str(ROOT / 'pipeline/runtime/code.py')!r})['code_of']; "
        f"closure = code(Path({str(PACKAGE)!r})).closure(['unseen.stages.train', 'unseen.stages.report']); "
        "print(json.dumps(closure))"
    )
    if (
        program is None
        or subprocess.run([program, "-c", "pass"], capture_output=True, check=False).returncode
    ):
        pytest.skip(f"{python} is not installed")
    other_digests, digests = (
        subprocess.run([name, "-c", command], capture_output=True, text=True, check=True).stdout
        for name in (program, sys.executable)
    )
    assert other_digests == digests


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the code that a test may edit."""
    root = tmp_path_factory.mktemp("code")
    copy_code(root)
    return root


PARAMS = Params(ROOT / "params.yaml")
STAGES = ("ingest", "train", "export", "evaluate", "analyze", "report")


def digests(root: Path, dataset: str, method: str) -> dict[str, dict[str, str]]:
    """The code of each stage of a run."""
    code = code_of(root / "pipeline")
    parts = modules_of(resolve(PARAMS, dataset, method))
    source = [f"unseen.data.ingest.sources.{dataset if dataset != 'cifar10' else 'cifar'}"]
    positions = position_modules_of(resolve(PARAMS, dataset, method))
    named = {"ingest": source, "train": parts, "export": [*parts, *positions]}
    return {stage: code.closure([f"unseen.stages.{stage}", *named.get(stage, [])]) for stage in STAGES}


@cache
def unchanged(method: str) -> dict[str, dict[str, str]]:
    """The code of a run of this repository, which the copy equals."""
    return digests(ROOT, "parts", method)


EDITS = [
    ("pipeline/losses/multi_similarity.py", "train export", "ms"),
    ("pipeline/losses/__init__.py", "train export", "ms"),
    ("pipeline/losses/contrastive.py", "", "ms"),
    ("pipeline/losses/contrastive.py", "train export", "irt_r"),
    ("pipeline/losses/snca.py", "", "ms"),
    ("pipeline/poolings/gsp.py", "", "ms"),
    ("pipeline/poolings/gsp.py", "train export", "gsp"),
    ("pipeline/networks/bn_inception.py", "", "ms"),
    ("pipeline/recipes/networks.yaml", "", "ms"),
    ("pipeline/recipes/weights.yaml", "", "ms"),
    ("pipeline/methods/crt.py", "", "gsp"),
    ("pipeline/runtime/progress.py", "", "ms"),
    ("pipeline/cluster/training.py", "", "ms"),
    ("pipeline/config/stages.py", "", "ms"),
    ("pipeline/evaluation/statistics/intervals.py", "analyze evaluate report", "ms"),
    ("pipeline/data/ingest/sources/cub.py", "", "ms"),
    ("pipeline/data/ingest/sources/parts.py", "analyze ingest", "ms"),
    ("pipeline/training/loop.py", "train", "ms"),
    ("pipeline/methods/explain/contribution.py", "export", "ms"),
    ("pipeline/methods/explain/crt.py", "", "ms"),
    ("pipeline/methods/explain/crt.py", "export", "crt"),
    ("pipeline/methods/explain/transport.py", "export", "gsp"),
    ("pipeline/data/positions.py", "analyze export report", "ms"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "stages", "method"), EDITS, ids=[f"{path} {method}" for path, _, method in EDITS]
)
def test_a_change_affects_only_dependent_stages(copy: Path, path: str, stages: str, method: str) -> None:
    digests_before = unchanged(method)
    file = copy / path
    text = file.read_text(encoding="utf-8")
    try:
        file.write_text(text + "\nA_NEW_CONSTANT = 1\n", encoding="utf-8")
        digests_after = digests(copy, "parts", method)
    finally:
        file.write_text(text, encoding="utf-8")
    changed = {stage for stage in STAGES if digests_after[stage] != digests_before[stage]}
    assert changed == set(stages.split()), "report and analyze may share a module: name them in the table"


def test_templates_belong_to_the_code_of_the_report(copy: Path) -> None:
    names = code_of(copy / "pipeline").closure(["unseen.stages.report"])
    assert [name for name in names if name.endswith(".html")]
    device = "unseen.runtime.device"  # how numbers are computed
    rest = [name for name in names if name.split(".")[:3] != device.split(".")]
    assert not any(name.startswith(("unseen.config", "unseen.runtime", "unseen.cluster")) for name in rest)


@pytest.mark.slow
def test_every_recipe_names_existing_modules() -> None:
    code = code_of(PACKAGE)
    for method in published("methods"):
        for dataset in ("cub", "parts", "tokens", "landmarks"):
            modules = modules_of(resolve(PARAMS, dataset, method))
            assert code.closure(modules).keys() >= set(modules)
            assert any(name.startswith("unseen.methods.") for name in modules)


def test_names_what_differs_from_the_recorded_code(tmp_path: Path) -> None:
    copy_code(tmp_path)
    package = tmp_path / "pipeline"
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/own.py").write_text("import torch\n", encoding="utf-8")
    recorded = code_of(package, tmp_path).closure(["unseen.report.page", "parts.own", "torch"])
    template = "unseen/report/page.html"
    assert recorded.keys() >= {"unseen.report.page", "parts.own", template, "torch"}
    assert code_of(package, tmp_path).differing(recorded) == []
    assert code_of(package, tmp_path).differing(recorded | {"torch": "0.1"}) == ["torch"]
    with (package / "report/page.html").open("a", encoding="utf-8") as file:
        file.write("<!-- changed -->")
    (tmp_path / "parts/own.py").unlink()
    with (package / "report/page.py").open("a", encoding="utf-8") as file:
        file.write("UNUSED = 1\n")
    assert code_of(package, tmp_path).differing(recorded) == ["parts.own", "unseen.report.page", template]


def test_imports_are_found_in_every_kind_of_block() -> None:
    text = """
try:
    import a
except ImportError:
    import b
else:
    import c
finally:
    import d
match x:
    case 1:
        import e
with x:
    import f
for x in y:
    import g
while x:
    import h
class C:
    def m(self):
        import i
        async def n():
            import j
if x:
    import k
elif y:
    import l
else:
    import m
"""
    assert code._imported(ast.parse(text)) == list("abcdefghijklm")
