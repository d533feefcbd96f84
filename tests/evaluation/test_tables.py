"""Per-query files of several runs."""

import random
from pathlib import Path

import numpy as np
import pytest

from unseen.data.tables import read_table
from unseen.evaluation.metrics import Rows, per_query
from unseen.evaluation.statistics.better import compare
from unseen.evaluation.statistics.table import of_queries
from unseen.evaluation.tables import query_table, read_runs, write_table
from unseen.runtime.errors import UserError


def test_reads_runs_from_per_query_files(tmp_path: Path) -> None:
    labels = np.array([4, 4, 4, 7, 7, 7, 9])  # the last class has one image
    results, paths = [], []
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((7, 3), dtype=np.float32)
        rows = Rows(np.arange(7), labels + (seed == 2), x)
        results.append(per_query(rows, rows, (1, 2)))
        paths.append(tmp_path / f"{seed}.parquet")
        write_table(paths[-1], query_table(results[-1]))
    for metric, name in (("recall_at_1", "recall_at_1"), ("ap_at_r", "map_at_r")):
        runs = read_runs(paths[:2], metric)
        assert runs.row_id.tolist() == list(range(7))
        assert runs.label.tolist() == labels.tolist()
        assert np.array_equal(
            runs.values, np.stack([result.columns()[name] for result in results[:2]]), equal_nan=True
        )
        assert np.isnan(runs.values[:, 6]).all()
        table = of_queries([runs.values[:1], runs.values[1:]], runs.label)
        assert compare(table, [(0, 1)], 100)[0].queries == 6
    with pytest.raises(UserError, match=r"2\.parquet does not contain the same queries as .*0\.parquet"):
        read_runs(paths, "recall_at_1")
    with pytest.raises(UserError, match=r"no column recall_at_3\.\n.*row_id, label, relevant"):
        read_runs(paths[:1], "recall_at_3")
    paths[0].write_bytes(paths[0].read_bytes()[:-20])
    for path, message in ((paths[0], "cannot be read"), (tmp_path / "none.parquet", "is missing")):
        with pytest.raises(UserError, match=message):
            read_runs([path], "recall_at_1")


def test_a_table_with_any_flipped_bits_is_read_or_refused(tmp_path: Path) -> None:
    rows = Rows(np.arange(8), np.arange(8) // 2, np.eye(8, 3, dtype=np.float32))
    path, draw = tmp_path / "queries.parquet", random.Random(0)
    write_table(path, query_table(per_query(rows, rows, (1, 2))))
    content = path.read_bytes()
    causes = set()
    for _ in range(400):
        damaged = bytearray(content)
        for _ in range(draw.choice((1, 2, 5))):
            damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        try:
            read_table(path, "Run the stage again.")
        except UserError as error:
            causes.add(type(error.__cause__).__name__)
    assert {"ArrowInvalid", "ArrowNotImplementedError", "OSError"} <= causes
