"""Particular objects (IRT section 4.2): retrieval-SfM-120k to train on, revisited Oxford and Paris to be
judged on, in one set of shards.

    split train    sfm120k/2f/1e/d0/...     class: the 3D model; group: `train` or `validation`, the published
    part that the image is of split test     roxford5k/<name>.jpg     class: the benchmark, which says no more
    than where the image belongs
                   rparis6k/<name>.jpg

Training learns from the models of group `train` and chooses its weights on those of group `validation`; the
reduction of the embeddings is learned on all of split train. No benchmark plays a part in either.

pairs.parquet: split (train, validation), query, positive (row ids). ground_truth.parquet: benchmark, query,
easy, hard, junk, those of Oxford first. Both are what sfm120k.py and revisited.py make of their set, and so
are counts and refusals.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from pipeline.config.dataset import LandmarksSource, RoxfordSource, RparisSource, Sfm120kSource
from pipeline.ingest.collection import Collection, Content, Extra, Picture, RowOf
from pipeline.ingest.sources import revisited, sfm120k

GROUPS = {"train": "train", "test": "validation"}  # split of sfm120k.py -> group here


class Together:
    """Reads a picture from the set that the first part of its name says."""

    def __init__(self, readers: dict[str, Callable[[str], Content]]) -> None:
        self.readers = readers

    def __call__(self, source: str) -> Content:
        name, _, within = source.partition("/")
        return self.readers[name](within)


def collection(source: LandmarksSource, scratch: Path) -> Collection:
    """The pictures of all sets, each named with its set in front. Raises UserError as the sets do by
    themselves."""

    def room(name: str) -> Path:
        """Its own part of the scratch directory: archives of two sets may have one name."""
        (scratch / name).mkdir()
        return scratch / name

    training = sfm120k.collection(Sfm120kSource(path=source.sfm120k), room("sfm120k"))
    judged: dict[str, Collection] = {}
    if source.roxford5k is not None:
        judged["roxford5k"] = revisited.collection(RoxfordSource(path=source.roxford5k), room("roxford5k"))
    if source.rparis6k is not None:
        judged["rparis6k"] = revisited.collection(RparisSource(path=source.rparis6k), room("rparis6k"))
    pictures = [
        replace(_named("sfm120k", picture), split="train", group=GROUPS[picture.split])
        for picture in training.pictures
    ]
    pictures += [_named(name, picture) for name, one in judged.items() for picture in one.pictures]
    members = {"sfm120k": training, **judged}
    return Collection(
        where=", ".join(member.where for member in members.values()),
        pictures=pictures,
        read=Together({name: member.read for name, member in members.items()}),
        facts={"members": {name: member.facts for name, member in members.items()}},
        extras={"pairs": _pairs(training.extras["pairs"]), "ground_truth": _ground_truth(judged)},
        by_class=False,
    )


def _named(name: str, picture: Picture) -> Picture:
    return replace(picture, source=f"{name}/{picture.source}")


def _within(name: str, row_of: RowOf) -> RowOf:
    return lambda source: row_of(f"{name}/{source}")


def _pairs(extra: Extra) -> Extra:
    def table(row_of: RowOf) -> pa.Table:
        found = extra(_within("sfm120k", row_of))
        return found.set_column(
            0, "split", pa.array([GROUPS[split] for split in found["split"].to_pylist()], pa.string())
        )

    return table


def _ground_truth(judged: dict[str, Collection]) -> Extra:
    def table(row_of: RowOf) -> pa.Table:
        tables = []
        for name, one in judged.items():
            found = one.extras["ground_truth"](_within(name, row_of))
            tables.append(found.add_column(0, "benchmark", pa.array([name] * len(found), pa.string())))
        return pa.concat_tables(tables)

    return table
