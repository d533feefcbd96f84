"""A sample of the campaign of hostile neighbours."""

import os
import sys
from pathlib import Path

import pytest

from tests.torture.neighbours import CASES, campaign, may_mount
from tests.torture.results import load, save
from tools.docs.reliability import page

SAMPLE = (
    "named pipe as `owner`",
    "link as `owner`",
    "SIGSTOP and SIGCONT",
    "named pipe as resolved settings",
    "unreadable settings",
)
FULL_DISK = "full disk, then a larger one"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="needs root on Linux")
def test_neighbours_stop_and_damage_nothing(tmp_path: Path) -> None:
    campaign(list(SAMPLE), tmp_path / "neighbours.json")
    found = load(tmp_path / "neighbours.json")
    assert set(found) == set(SAMPLE) <= set(CASES)
    assert [result["violations"] for result in found.values()] == [[]] * len(SAMPLE)
    works, refused = SAMPLE[:3], SAMPLE[3:]
    assert all(found[name]["outcome"] == "works" for name in works)
    assert all(found[name]["outcome"].startswith("error: data/resolved/") for name in refused)
    assert "5 cases: 3 work, 2 end with one message, 0 violations." in page(tmp_path)


@pytest.mark.slow
def test_a_full_disk_that_is_enlarged(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    if sys.platform != "linux" or os.geteuid() != 0 or not may_mount(tmp_path / "disk"):
        pytest.skip("this process may not mount a disk")
    campaign([FULL_DISK], tmp_path / "neighbours.json")
    (result,) = load(tmp_path / "neighbours.json").values()
    assert result["violations"] == []
    assert result["outcome"].startswith("error: The disk is full: data/shards/parts could not be written")
    assert result["outcome"].endswith("; then works")


def test_the_page_compares_an_attack_with_its_control(tmp_path: Path) -> None:
    measures = {"answers": 300, "p50": 0.001, "p99": 0.12, "control_p99": 0.06, "memory": 2.0**21}
    save(tmp_path / "attacks.json", {"noise": {"commit": "abc", "digest": "0", **measures}})
    text = page(tmp_path)
    assert "| noise | 300 | 1 | 120 | 60 | 2.0 | 2 | abc |" in text
    assert "The p99 of 0 of 1 is below 100 ms." in text
