"""Landmarks (IRT section 4.2): retrieval-SfM-120k for training, revisited Oxford and Paris for evaluation, in
one set of shards.

    split train    sfm120k/2f/1e/d0/...    class: 3D model; group: published part, `train` or `validation`
    split test     roxford5k/<name>.jpg    class: the benchmark; it does not define which images match
                   rparis6k/<name>.jpg

Training uses the models of group `train` and selects its weights on those of group `validation`. The
reduction of the embeddings is learned on all of split train. No benchmark is used in either.

pairs.parquet: split (train, validation), query, positive (row ids). ground_truth.parquet: benchmark, query,
easy, hard, junk, first the rows of Oxford. The sources sfm120k.py and revisited.py make both tables, and
check the counts.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from unseen.data.ingest.collection import Collection, Content, Extra, Picture, RowOf
from unseen.data.ingest.settings import LandmarksSource, RoxfordSource, RparisSource, Sfm120kSource
from unseen.data.ingest.sources import revisited, sfm120k

GROUPS = {"train": "train", "test": "validation"}  # split of sfm120k.py -> group here


class PrefixReader:
    """Reads a picture from the set that the first part of its name gives."""

    def __init__(self, readers: dict[str, Callable[[str], Content]]) -> None:
        self.readers = readers

    def __call__(self, source: str) -> Content:
        set_name, _, name = source.partition("/")
        return self.readers[set_name](name)


def collection(source: LandmarksSource, scratch: Path) -> Collection:
    """The pictures of all sets; each name begins with the name of its set. Raises UserError as the sources of
    the sets do."""

    def subdirectory(name: str) -> Path:
        """A scratch directory for one set, because archives of two sets may have the same name."""
        (scratch / name).mkdir()
        return scratch / name

    training = sfm120k.collection(Sfm120kSource(path=source.sfm120k), subdirectory("sfm120k"))
    benchmarks: dict[str, Collection] = {}
    if source.roxford5k is not None:
        oxford = RoxfordSource(path=source.roxford5k)
        benchmarks["roxford5k"] = revisited.collection(oxford, subdirectory("roxford5k"))
    if source.rparis6k is not None:
        paris = RparisSource(path=source.rparis6k)
        benchmarks["rparis6k"] = revisited.collection(paris, subdirectory("rparis6k"))
    pictures = [
        replace(_with_prefix("sfm120k", picture), split="train", group=GROUPS[picture.split])
        for picture in training.pictures
    ]
    for name, benchmark in benchmarks.items():
        pictures += [_with_prefix(name, picture) for picture in benchmark.pictures]
    members = {"sfm120k": training, **benchmarks}
    return Collection(
        location=", ".join(member.location for member in members.values()),
        pictures=pictures,
        read=PrefixReader({name: member.read for name, member in members.items()}),
        facts={"members": {name: member.facts for name, member in members.items()}},
        extras={"pairs": _pairs(training.extras["pairs"]), "ground_truth": _ground_truth(benchmarks)},
        by_class=False,
    )


def _with_prefix(name: str, picture: Picture) -> Picture:
    return replace(picture, source=f"{name}/{picture.source}")


def _row_of_member(name: str, row_of: RowOf) -> RowOf:
    """The row id of a picture, by its source within the set `name`."""
    return lambda source: row_of(f"{name}/{source}")


def _pairs(extra: Extra) -> Extra:
    def table(row_of: RowOf) -> pa.Table:
        pairs = extra(_row_of_member("sfm120k", row_of))
        groups = [GROUPS[split] for split in pairs["split"].to_pylist()]
        return pairs.set_column(0, "split", pa.array(groups, pa.string()))

    return table


def _ground_truth(benchmarks: dict[str, Collection]) -> Extra:
    def table(row_of: RowOf) -> pa.Table:
        tables = []
        for name, benchmark in benchmarks.items():
            truth = benchmark.extras["ground_truth"](_row_of_member(name, row_of))
            tables.append(truth.add_column(0, "benchmark", pa.array([name] * len(truth), pa.string())))
        return pa.concat_tables(tables)

    return table
