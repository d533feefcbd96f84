"""The command `unseen evaluate`."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.vectors import unit
from unseen import evaluate
from unseen.cli import main as cli

LABELS = np.repeat(np.arange(8), 4)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    paths = []
    for name, noise in (("first", 1.0), ("second", 0.3)):
        x = unit(np.eye(8)[LABELS] + noise * np.random.default_rng(0).standard_normal((32, 8)))
        paths.append(str(tmp_path / f"{name}.parquet"))
        pq.write_table(pa.table({"label": LABELS, "embedding": list(x)}), paths[-1])
    return paths


def test_prints_percent_and_intervals(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    x = np.stack(pq.read_table(files[0])["embedding"].to_numpy())
    metrics = evaluate(x, LABELS, recall_at=(1, 5))
    cli.main(["evaluate", files[0], "--recall-at", "1,5"])
    printed = capsys.readouterr().out
    assert "32 queries, 32 images and 8 classes in the gallery" in printed
    for name, key in (("Recall@5", "recall_at_5"), ("MAP@R", "map_at_r")):
        low, high = (f"{100 * metrics[f'{key}_{end}']:.1f}" for end in ("low", "high"))
        assert re.search(rf"^{name} +{100 * metrics[key]:.1f} +{low} – {high}$", printed, re.MULTILINE), name


def test_searches_another_file(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["evaluate", files[0], "--gallery", files[1], "--json"])
    x, others = (np.stack(pq.read_table(file)["embedding"].to_numpy()) for file in files)
    (metrics,) = json.loads(capsys.readouterr().out)["files"]
    assert metrics.pop("file") == files[0]
    assert metrics == evaluate(x, LABELS, gallery=others, gallery_labels=LABELS)


def test_compares_two_files(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["evaluate", *files, "--json"])
    content = json.loads(capsys.readouterr().out)
    first, second = content["files"]
    assert [first["file"], second["file"]] == files
    difference = content["differences"]["map_at_r"]
    assert difference["difference"] == pytest.approx(second["map_at_r"] - first["map_at_r"], abs=1e-9)
    cli.main(["evaluate", *files])
    low, high = (f"{100 * difference[end]:.1f}" for end in ("low", "high"))
    p_values = [f"{difference[key]:.3g}" for key in ("p_value", "adjusted_p_value")]
    assert len(set(p_values)) == 2
    cells = ["MAP@R", f"{100 * difference['difference']:+.1f}", low, "–", high, *p_values]
    assert cells in [line.split() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--recall-at", "1,0"], 2, "'1,0' is not a list of positive numbers"),
        (["--recall-at", "1;2"], 2, "'1;2' is not a list of positive numbers"),
        (["more", "files"], 2, "Expected one or two files, got 3"),
        (["--confidence", "1"], 2, "is not in the range"),
        (["--confidence", "nan"], 1, "confidence is nan, expected above 0 and at most 0.9999"),
        (["--recall-at", "9" * 30], 1, "recall_at is 999999999999999999999999999999, expected ranks of 1 to"),
        (["nowhere.parquet"], 1, "nowhere.parquet does not exist"),
    ],
)
def test_a_mistake_gives_a_message(
    files: list[str], arguments: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["evaluate", files[0], *arguments])
    assert ended.value.code == status
    assert message in capsys.readouterr().err
