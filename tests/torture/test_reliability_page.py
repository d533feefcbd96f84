"""docs/reliability.md is the page of the committed results."""

from pathlib import Path

from tests.torture.results import ROOT, save
from tools.docs.reliability import page


def test_the_document_has_the_committed_results() -> None:
    assert (ROOT / "docs/reliability.md").read_text(encoding="utf-8") == page()


def test_the_page_counts_cases_and_names_violations(tmp_path: Path) -> None:
    identity = {"commit": "abc", "digest": "0", "cpu_seconds": 7.4}
    operations = {"operations": 2, "cases": 3, "violations": {"1 EIO": ["traceback: OSError"]}}
    kill = {"kill": "dvc repro --single-item --force report, all, SIGKILL", "violations": ["x is left"]}
    save(tmp_path / "file_operations.json", {"train": identity | operations})
    save(tmp_path / "kills.json", {"report": identity | {"kills": {"0": kill}}})
    text = page(tmp_path)
    assert "| train | 2 | 3 of 8 | no | 1 | 7 | abc |" in text
    assert "- train: traceback: 1 cases" in text
    assert "| report | 1 | 1 all SIGKILL | 0 | 0 | 1 | 7 | abc |" in text
    assert "- kill 0, dvc repro --single-item --force report, all, SIGKILL: x is left" in text
    assert text.count("not run") == 9


def test_the_page_counts_effective_kills_only(tmp_path: Path) -> None:
    kills = (
        "workers restarted",
        "command ended, second run",
        "without effect",
        "without effect: ended before",
    )
    result = {
        "kills": {
            str(number): {"kill": f"after step 2, {kill}", "violations": []}
            for number, kill in enumerate(kills)
        }
    }
    identity = {"commit": "abc", "digest": "0", "cpu_seconds": 5040.0}
    save(tmp_path / "clusters.json", {"last node": identity | result})
    text = page(tmp_path)
    assert "| last node | 4 | 2 | 1 | 0 | 5,040 | abc |" in text
    assert "The results on this page took 1.4 CPU hours." in text


def test_the_page_counts_the_steps_that_begin_again(tmp_path: Path) -> None:
    trainings = {
        "0": {"training": "1, 2, 9", "violations": []},
        "3": {"training": "", "violations": ["history.csv differs"]},
    }
    identity = {"commit": "abc", "digest": "0", "cpu_seconds": 90.0}
    save(tmp_path / "preemptions.json", {"notice": identity | {"trainings": trainings}})
    text = page(tmp_path)
    assert "| notice | 2 | 3 | 2, 9 | 1 | 90 | abc |" in text
    assert "- training 3, notice: history.csv differs" in text
