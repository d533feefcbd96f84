"""Groups, boxes and further tables of shards: optional columns, the fingerprint, damage."""

import hashlib
import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unseen.data.shard_writer import ShardWriter
from unseen.data.shards import Shards
from unseen.runtime.digest import sha256_of
from unseen.runtime.errors import UserError


class TestGroupsBoxesAndExtras:
    @pytest.fixture
    def queries(self, tmp_path: Path) -> Path:
        directory = tmp_path / "queries"
        directory.mkdir()
        with ShardWriter(directory, ["ant", "bee"], 2**20) as writer:
            writer.add(b"0", 0, "train", "0.jpg", 9, 9, group="hymenoptera")
            writer.add(b"1", 1, "test", "1.jpg", 9, 9, box=(-0.5, 1.25, 10.0, 8.0))
            writer.add(b"2", 1, "test", "2.jpg", 9, 9, group="", box=None)
            pq.write_table(
                pa.table({"query": [1], "easy": pa.array([[2]], pa.list_(pa.int64()))}),
                directory / "ground_truth.parquet",
            )
            writer.finish(
                {
                    "dataset": "queries",
                    "extras": {"ground_truth.parquet": sha256_of(directory / "ground_truth.parquet")},
                }
            )
        return directory

    def test_reads_the_written_columns(self, queries: Path) -> None:
        shards = Shards(queries, verify=True)
        assert shards.groups == ["hymenoptera", None, ""]
        assert [shards.box(row) for row in range(3)] == [None, (-0.5, 1.25, 10.0, 8.0), None]
        assert shards.extra("ground_truth").to_pylist() == [{"query": 1, "easy": [2]}]
        index = pq.read_table(queries / "index.parquet")
        assert index.schema.field("group").type == pa.string()
        assert index["box"].to_pylist() == [None, [-0.5, 1.25, 10.0, 8.0], None]
        assert pickle.loads(pickle.dumps(shards)).box(1) == shards.box(1)

    def test_a_set_without_optional_values_has_no_such_columns(self, shard_directory: Path) -> None:
        assert not {"group", "box"} & set(pq.read_table(shard_directory / "index.parquet").column_names)
        shards = Shards(shard_directory)
        assert shards.groups == [None] * 700
        assert shards.box(699) is None
        with pytest.raises(UserError, match=r"animals has no pairs\.parquet; it has: none"):
            shards.extra("pairs")

    def test_optional_values_change_the_fingerprint(self, tmp_path: Path) -> None:
        def fingerprint(name: str, extras: dict[str, str], **optional: Any) -> str:
            (tmp_path / name).mkdir()
            with ShardWriter(tmp_path / name, ["ant"], 2**20) as writer:
                writer.add(b"0", 0, "train", "0.jpg", 9, 9, **optional)
                for file in extras:
                    (tmp_path / name / file).touch()
                writer.finish({"extras": extras} if extras else {})
            return Shards(tmp_path / name).fingerprint

        fingerprints = [
            fingerprint("plain", {}),
            fingerprint("group", {}, group="a"),
            fingerprint("other", {}, group="b"),
            fingerprint("box", {}, box=(0.0, 0.0, 1.0, 1.0)),
            fingerprint("pairs", {"pairs.parquet": "1"}),
            fingerprint("pears", {"pairs.parquet": "2"}),
        ]
        assert len(set(fingerprints)) == 6
        shard_hashes = json.loads((tmp_path / "plain" / "manifest.json").read_text())["shards"]
        assert (
            fingerprints[0] == hashlib.sha256(json.dumps(shard_hashes, sort_keys=True).encode()).hexdigest()
        )

    def test_a_changed_and_a_missing_extra(self, queries: Path) -> None:
        with (queries / "ground_truth.parquet").open("ab") as file:
            file.write(b" ")
        with pytest.raises(UserError, match=r"ground_truth\.parquet is damaged: it has sha256"):
            Shards(queries, verify=True)
        (queries / "ground_truth.parquet").unlink()
        with pytest.raises(UserError, match=r"(?s)ground_truth\.parquet is missing.*ingest@queries"):
            Shards(queries)
