"""A sample of the campaign of damaged files, of every kind."""

import random
from pathlib import Path

import pytest

from tests.torture import mutations
from tests.torture.damage import damaged
from tests.torture.limited import Counts
from tests.torture.mutations import Kind, kinds, run

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


@pytest.mark.slow
def test_valid_files_are_read(known: dict[str, Kind]) -> None:
    for name, kind in known.items():
        counts = Counts()
        whole = Kind(kind.files, kind.readers[:1], (), lambda files, draw: files[0])
        run(name, whole, 0, 1, counts)
        assert (counts.read, counts.violations) == (1, {}), name


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
        mutations, "kinds", lambda _: {"images": Kind([b""], [], ("pipeline.data.decode",), damaged)}
    )
    mutations.campaign([], 15, tmp_path / "state.json", 60)
    mutations.campaign([], 25, tmp_path / "state.json", 60)
    assert numbers == [(0, 10), (10, 5), (15, 10)]
