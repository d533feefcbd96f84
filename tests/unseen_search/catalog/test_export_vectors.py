"""The vectors of a catalog as Parquet."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.photos import save_model, save_products
from unseen.cli import main as cli
from unseen.evaluation.external import evaluate_files, evaluate_vectors
from unseen_search.catalog import export_vectors as module
from unseen_search.catalog.building import build


@pytest.mark.slow
def test_unseen_evaluate_reads_the_exported_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "ROWS", 4)  # several row groups
    model = save_model(tmp_path / "model", 1)
    catalog = build(save_products(tmp_path / "photos"), tmp_path / "catalog", model, labels="folders")
    file = tmp_path / "vectors.parquet"
    cli.main(["export-vectors", str(tmp_path / "catalog"), str(file)])
    assert capsys.readouterr().out == f"{file}: {len(catalog):,} vectors\n"
    table = pq.read_table(file)
    assert table["row_id"].to_pylist() == list(range(len(catalog)))
    assert table["path"].to_pylist() == catalog.paths
    assert table["label"].to_pylist() == catalog.labels
    vectors = np.stack(table["embedding"].to_numpy())
    assert np.array_equal(vectors, catalog.vectors())
    (metrics,) = evaluate_files([file]).metrics
    assert metrics == evaluate_vectors(catalog.vectors(), catalog.labels)
