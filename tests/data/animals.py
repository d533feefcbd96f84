"""Shards of drawn bytes: images of an ant, a bee and a cow."""

from pathlib import Path

import numpy as np

from unseen.data.shard_writer import ShardWriter


def payload(row: int) -> bytes:
    return np.random.default_rng(row).bytes(20 + row * 7 % 300)


def write(directory: Path, rows: int = 700, shard_bytes: int = 2**20) -> Path:
    directory.mkdir(parents=True)
    names = ["ant", "bee", "cow"]
    with ShardWriter(directory, names, shard_bytes) as writer:
        for row in range(rows):
            label = row * 3 // rows
            split = "train" if label < 2 else "test"
            writer.add(
                payload(row),
                label,
                split,
                f"{names[label]}/{row:04d}.jpg",
                10 + row % 5,
                20 + row % 7,
                is_query=row % 2 == 0,
            )
        writer.finish({"dataset": "animals", "ingest": {"resize": None}})
    return directory
