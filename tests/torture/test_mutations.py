"""A sample of the campaign of damaged files, of every kind."""

import asyncio
import random
import time
from pathlib import Path

import pytest
from anyio.to_thread import current_default_thread_limiter, run_sync
from ruamel.yaml import YAML

from tests.torture import mutations, seeds
from tests.torture.damage import damaged
from tests.torture.limited import Counts
from tests.torture.mutations import Kind, kinds, run
from tests.torture.unnoticed import MAY_CHANGE
from tests.torture.uploads import ShortenedLoop

EACH = 40  # cases of a kind


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kind]:
    return kinds(tmp_path_factory.mktemp("seeds"))


@pytest.mark.slow
def test_damaged_files_of_every_kind_are_read_or_refused(known: dict[str, Kind]) -> None:
    for name, kind in known.items():
        counts = Counts()
        run(name, kind, 0, EACH, counts)
        assert counts.violations == {}, name
        assert counts.cases == EACH, name
        assert counts.refused > 0, name


def test_values_of_every_other_kind_are_compared(known: dict[str, Kind]) -> None:
    assert MAY_CHANGE.keys() < known.keys()
    assert known.keys() - MAY_CHANGE.keys() == {
        "catalogs and index files",
        "checkpoints of a training",
        "embeddings",
        "histories",
        "maps of unfinished builds",
        "models",
        "positions",
        "published networks",
        "results of an evaluation",
        "shards",
        "vectors of unfinished builds",
    }


def test_a_value_that_changes_without_notice_is_a_violation() -> None:
    counts = Counts()
    silent = Kind([b"1"], [int], (), lambda files, draw: b"2")
    run("a new kind", silent, 0, 1, counts)
    assert counts.violations == {"0": "AssertionError: values changed without notice"}


@pytest.mark.slow
def test_valid_files_are_read(known: dict[str, Kind]) -> None:
    for name, kind in known.items():
        counts = Counts()
        whole = Kind(kind.files, kind.readers[:1], (), lambda files, draw: files[0])
        run(name, whole, 0, 1, counts)
        assert (counts.read, counts.violations) == (1, {}), name


def test_the_seeds_of_settings_contain_every_block() -> None:
    trees = [YAML(typ="safe").load(content) for content in seeds.params_files()]
    assert len(trees) == len(trees[0]) + 1
    for tree, block in zip(trees[1:], trees[0], strict=True):
        assert tree[block] == trees[0][block]
        assert {name for name in tree if tree[name]} <= {"run", block}


def test_a_case_of_settings_does_not_depend_on_earlier_cases() -> None:
    files = [b'{"a": {"b": [1, 2], "c": {"d": "e"}}, "f": [{"g": 0}]}']
    drawn = [mutations.changed_settings(files, random.Random(number)) for number in range(400)]
    assert [mutations.changed_settings(files, random.Random(number)) for number in range(400)] == drawn


def _work() -> str:
    time.sleep(1.2)
    return "finished"


def test_the_loop_of_the_service_waits_only_for_threads() -> None:
    """An hour passes at once. Work in a thread takes no time of the loop."""

    async def exchange() -> str:
        loop.threads = current_default_thread_limiter()
        await asyncio.sleep(3600)
        async with asyncio.timeout(1):
            return await run_sync(_work)

    loop = ShortenedLoop()
    start = time.monotonic()
    assert loop.run_until_complete(exchange()) == "finished"
    loop.close()
    assert 1.2 <= time.monotonic() - start < 60


def test_a_case_depends_on_its_number_only(known: dict[str, Kind], tmp_path: Path) -> None:
    files = known["images"].files
    first, again, other = (damaged(files, random.Random(f"images {number}")) for number in (7, 7, 8))
    assert first == again != other


@pytest.mark.slow
def test_the_campaign_continues_with_the_next_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers: list[tuple[int, int]] = []

    def recorded(name: str, kind: Kind, first: int, count: int, counts: Counts) -> None:
        numbers.append((first, count))
        counts.read += count

    monkeypatch.setattr(mutations, "run", recorded)
    monkeypatch.setattr(mutations, "CHUNK", 10)
    monkeypatch.setattr(
        mutations, "kinds", lambda _: {"images": Kind([b""], [], ("unseen.data.decode",), damaged)}
    )
    mutations.campaign([], 15, tmp_path / "state.json", 60)
    mutations.campaign([], 25, tmp_path / "state.json", 60)
    assert numbers == [(0, 10), (10, 5), (15, 10)]
