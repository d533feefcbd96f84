"""The schema of shards: version, splits and columns of the files that pipeline/data/shards.py describes."""

import pyarrow as pa

SCHEMA_VERSION = 1
SPLITS = ("train", "test")

SCHEMA = pa.schema(
    [
        ("row_id", pa.int64()),
        ("image", pa.large_binary()),
        ("label", pa.int64()),
        ("split", pa.string()),
        ("source", pa.string()),
    ],
    metadata={"schema_version": str(SCHEMA_VERSION)},
)
INDEX = pa.schema(
    [
        ("row_id", pa.int64()),
        ("label", pa.int64()),
        ("class_name", pa.string()),
        ("split", pa.string()),
        ("source", pa.string()),
        ("sha256", pa.string()),  # of the stored image bytes
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("shard", pa.int32()),
        ("batch", pa.int32()),
        ("offset", pa.int32()),  # row within the batch
        ("is_query", pa.bool_()),
        ("is_gallery", pa.bool_()),
    ]
)
# Columns of the index only if a row of the set has a value, so that they do not change the bytes of other
# sets.
OPTIONAL = pa.schema(
    [
        ("group", pa.string()),  # a level above or below the class: a super-class, an alphabet, a 3D model
        # x0, y0, x1, y1 in pixels of the stored image; may exceed its edge
        ("box", pa.list_(pa.float64(), 4)),
    ]
)
