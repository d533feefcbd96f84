"""The vectors of a catalog as Parquet, for other programs and for `unseen evaluate`."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unseen.runtime.files import atomic_file
from unseen_search.catalog.catalog import Catalog

ROWS = 1 << 16  # of a row group


def export_vectors(catalog: Catalog, path: Path) -> int:
    """Writes row_id (row of the catalog), path, label (null without one) and embedding (fixed-size list of
    float32, unit length) of every picture; returns their number. It reads one row group at a time."""
    schema = pa.schema(
        {
            "row_id": pa.int64(),
            "path": pa.string(),
            "label": pa.string(),
            "embedding": pa.list_(pa.float32(), int(catalog.about["dim"])),
        }
    )
    with atomic_file(path) as aside, pq.ParquetWriter(aside, schema) as writer:
        for start in range(0, len(catalog), ROWS):
            rows = np.arange(start, min(start + ROWS, len(catalog)))
            vectors = catalog.vectors(rows)
            part = slice(start, start + ROWS)
            embedding = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
            columns = [pa.array(rows), catalog.paths[part], catalog.labels[part], embedding]
            writer.write_table(pa.table(columns, schema=schema))
    return len(catalog)
