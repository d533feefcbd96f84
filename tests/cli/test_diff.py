"""`unseen diff`: two revisions compared query by query, read from git and DVC's cache."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dvc.repo import Repo

from unseen.cli.at_revision import AtRevision
from unseen.cli.diff import difference
from unseen.evaluation.protocol import Protocol
from unseen.evaluation.statistics.better import compare
from unseen.evaluation.statistics.table import of_queries
from unseen.runtime.errors import UserError
from unseen.runtime.sealed import write_digests

pytestmark = pytest.mark.graph
CLASSES, IMAGES = 40, 6
LABELS = np.repeat(np.arange(CLASSES), IMAGES)


def values(shift: float, method: str = "ms") -> np.ndarray:
    """MAP@R of each query: those of a method, moved by `shift` with a little noise by class."""
    random = np.random.default_rng(len(method))
    of_class = np.repeat(random.uniform(0.2, 0.6, CLASSES), IMAGES) + random.normal(0, 0.05, len(LABELS))
    noise = np.random.default_rng(round(1000 * shift)).normal(0, 0.01, CLASSES) * bool(shift)
    return of_class + shift + np.repeat(noise, IMAGES)


def write(shifts: dict[str, float], device: str = "x86_64 AVX512", confidence: float = 0.95) -> None:
    """The results of each method, whose MAP@R is moved by its shift."""
    Path("params.yaml").write_text(
        json.dumps({"run": {"datasets": ["birds"], "methods": [*shifts], "seeds": [0]}})
    )
    for method, shift in shifts.items():
        cell = Path("data/evaluation/birds", method, "0")
        cell.mkdir(parents=True, exist_ok=True)
        ap = values(shift, method)
        columns = {"row_id": np.arange(len(LABELS)), "label": LABELS, "recall_at_1": ap > 0.4, "ap_at_r": ap}
        pq.write_table(pa.table(columns), cell / "queries.parquet")
        metrics = {
            "map_at_r": float(ap.mean()),
            "recall_at_1": float((ap > 0.4).mean()),
            "features_map_at_r": 0.1,
        }
        (cell / "metrics.json").write_text(json.dumps(metrics))
        protocol = Protocol("test", (1,), confidence, 0).declaration()
        (cell / "protocol.json").write_text(json.dumps(protocol))
        write_digests(cell)
        log = Path("data/logs/birds", method, "0.json")
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(json.dumps({"host": {"device": device}}))


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def commit(message: str) -> None:
    with Repo() as repo:
        repo.add(["data/evaluation", "data/logs"])
    run("git", "add", "-A")
    run("git", "commit", "-qm", message)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    run("git", "init", "-q")
    for key in ("user.name", "user.email"):  # DVC's experiments need them, too
        run("git", "config", key, "t@t")
    Repo.init().close()
    write({"ms": 0.0, "gsp": 0.0})
    commit("first")
    run("git", "tag", "first")
    return tmp_path


def cells(text: str, method: str, metric: str) -> str:
    (line,) = (line for line in text.splitlines() if f"birds     {method}" in line and f" {metric} " in line)
    return line


def test_compares_the_workspace_with_a_revision(project: Path) -> None:
    write({"ms": 0.1, "gsp": 0.0, "new": 0.0})
    text = difference("first")
    expected = compare(of_queries([values(0.0)[None], values(0.1)[None]], LABELS), [(0, 1)])[0]
    line = cells(text, "ms", "MAP@R")
    assert f"{100 * expected.first:.1f}" in line
    assert f"+{100 * expected.difference:.1f}" in line
    assert f"+{100 * expected.low:.1f} to +{100 * expected.high:.1f}" in line
    assert line.endswith("distinct over these classes")
    assert "equal for each query: gsp on birds" in text
    assert "new" not in text
    assert "processors" not in text


def test_a_difference_of_noise_has_no_verdict(project: Path) -> None:
    write({"ms": 0.001, "gsp": 0.0})
    commit("second")
    assert cells(difference("first", "HEAD"), "ms", "MAP@R").endswith("open")


def test_the_order_of_revisions_is_the_sign(project: Path) -> None:
    write({"ms": 0.1, "gsp": 0.0})
    commit("second")
    there, back = (cells(difference(*pair), "ms", "MAP@R") for pair in (("first", "HEAD"), ("HEAD", "first")))
    assert "+10.0   +9.7 to +10.3" in there
    assert "−10.0   −10.3 to −9.7" in back


def test_reads_an_experiment(project: Path) -> None:
    write({"ms": 0.1, "gsp": 0.0})
    with Repo() as repo:
        repo.commit(force=True)
        repo.experiments.save(name="more")
    run("git", "checkout", "-q", "-f", "first")
    with Repo() as repo:
        repo.checkout(force=True)
    assert cells(difference("more"), "ms", "MAP@R").endswith("distinct over these classes")
    assert "equal for each query: ms on birds, gsp on birds" in difference("first")


def test_names_other_kinds_of_processors(project: Path) -> None:
    write({"ms": 0.001, "gsp": 0.0}, device="x86_64 AVX2")
    text = difference("first")
    assert "Trained on other kinds of processors: first on x86_64 AVX512, now on x86_64 AVX2." in text
    assert ".1317 with AVX-512 and .1296" in text


def test_a_missing_log_is_named(project: Path) -> None:
    write({"ms": 0.001, "gsp": 0.0})
    for path in Path("data/logs").rglob("*.json"):
        path.unlink()
    commit("without logs")
    assert "now on an unknown processor (no log)" in difference("first")


def test_several_seeds_give_better_or_worse(project: Path) -> None:
    """With two seeds or more, the verdict includes what seeds vary."""
    for shift in (0.0, 0.1):
        shutil.rmtree("data/evaluation")
        write({"ms": shift})
        Path("params.yaml").write_text(
            json.dumps({"run": {"datasets": ["birds"], "methods": ["ms"], "seeds": [0, 1, 2]}})
        )
        for seed in (1, 2):
            shutil.copytree("data/evaluation/birds/ms/0", f"data/evaluation/birds/ms/{seed}")
            shutil.copy("data/logs/birds/ms/0.json", f"data/logs/birds/ms/{seed}.json")
            path = Path(f"data/evaluation/birds/ms/{seed}/queries.parquet")
            table = pq.read_table(path)
            moved = table["ap_at_r"].to_numpy() + 0.002 * seed * (1 + shift)
            pq.write_table(table.set_column(3, "ap_at_r", pa.array(moved)), path)
            write_digests(path.parent)
        commit(f"seeds {shift}")
    text = difference("HEAD~1")
    assert cells(text, "ms", "MAP@R").endswith("better")
    assert "One seed" not in text


def test_refuses_a_result_with_another_digest(project: Path) -> None:
    path = Path("data/evaluation/birds/ms/0/queries.parquet")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()  # a link to DVC's cache
    path.write_bytes(content)
    message = (
        r"At now: data/evaluation/birds/ms/0/queries\.parquet differs from its sha256.*\n.*evaluate@birds"
    )
    with pytest.raises(UserError, match=message):
        difference("first")


@pytest.mark.parametrize(
    ("revision", "message"),
    [("unknown", "Unknown git revision unknown"), ("HEAD", "differ in confidence")],
)
def test_refuses(project: Path, revision: str, message: str) -> None:
    write({"ms": 0.1}, confidence=0.9)
    with pytest.raises(UserError, match=message):
        difference(revision)


def test_refuses_revisions_without_a_common_method(project: Path) -> None:
    write({"other": 0.1})
    with pytest.raises(UserError, match=r"run\.methods of params\.yaml of first"):
        difference("first")


def test_names_what_the_cache_lacks(project: Path) -> None:
    write({"ms": 0.1, "gsp": 0.0})
    run("rm", "-rf", ".dvc/cache")
    with pytest.raises(UserError, match=r"queries\.parquet of first is neither in git nor in DVC's cache"):
        difference("first")


def test_a_revision_needs_a_repository_that_git_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(UserError, match="HEAD cannot be read: fatal: not a git repository"):
        AtRevision("HEAD")
    subprocess.run(["git", "init", "--quiet"], check=True)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(UserError, match=r"HEAD cannot be read: .*safe\.directory"):
        AtRevision("HEAD")
