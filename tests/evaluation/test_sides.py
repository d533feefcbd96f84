"""Queries and gallery of an embedding file."""

from pathlib import Path

import numpy as np

from unseen.data.embeddings import read, write
from unseen.evaluation.sides import read_sides, sides_of


def unit(rows: int) -> np.ndarray:
    x = np.random.default_rng(0).standard_normal((rows, 3))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def test_a_row_is_on_the_sides_that_the_file_lists(tmp_path: Path) -> None:
    path, vectors, labels = tmp_path / "test.arrow", unit(6), np.arange(6) // 2
    is_query, is_gallery = np.array([1, 0, 1, 0, 0, 1], bool), np.array([0, 1, 1, 1, 1, 0], bool)
    write(path, np.arange(10, 16), labels, vectors, is_query, is_gallery)
    queries, gallery = read_sides(path)
    assert queries.row_id.tolist() == [10, 12, 15]
    assert gallery.row_id.tolist() == [11, 12, 13, 14]
    assert gallery.label.tolist() == [0, 1, 1, 2]
    assert np.array_equal(queries.embedding, vectors[is_query])
    assert np.array_equal(gallery.embedding, vectors[is_gallery])


def test_a_side_of_all_rows_is_a_view(tmp_path: Path) -> None:
    write(tmp_path / "test.arrow", np.arange(6), np.arange(6) // 2, unit(6))
    rows = read(tmp_path / "test.arrow")
    for side in sides_of(rows):
        assert np.shares_memory(side.embedding, rows.embedding)
