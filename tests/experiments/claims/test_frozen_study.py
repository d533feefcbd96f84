"""Studies on frozen networks: the rows are valid heads, the numbers equal their definition, the committed
results belong to the studies."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.experiments.claims.conftest import STUDY
from tools.docs.frozen_studies import markdown
from unseen.cli import main as cli
from unseen.experiments.catalogue import entries, study_of
from unseen.experiments.claims.claim import claims
from unseen.experiments.claims.frozen_study import definition, frozen_studies, head_of, load_studies
from unseen.frozen.head import head
from unseen.runtime.errors import UserError


def test_every_row_is_a_valid_head_without_a_network_of_its_own() -> None:
    for name, study in frozen_studies().items():
        rows = [entry for entry in entries(study_of(name)) if entry.method.startswith(study.rows)]
        assert len(rows) >= 3
        for entry in rows:
            like, changes = head_of(entry, study, claims().setting)
            head(like, changes=changes).recipe()
            assert not [field for field in changes if field.startswith(("backbone", "input"))]


def test_the_committed_results_belong_to_the_studies() -> None:
    results = load_studies()
    assert set(results.studies) == set(frozen_studies())
    for name, study in frozen_studies().items():
        assert results.studies[name].definition == definition(name, study, claims())
    page = Path(__file__).parents[3] / "docs/frozen_studies.md"
    assert page.read_text(encoding="utf-8") == markdown(results)


@pytest.mark.slow
def test_computes_a_study(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--photos", str(tiny / "photos"), "--output", str(tiny / "out"), "--seeds", "2"]
    options += ["--weights", f"small={tiny / 'w.safetensors'}", "--study", "irt-table-5"]
    cli.main(["claims", *options])
    assert "R50" not in capsys.readouterr().out
    results = load_studies(tiny / "out/studies.json")
    study = results.studies["irt-table-5"]
    assert list(study.rows) == [
        f"irt-table-5-deit-s-beta-0-1-lambda-{value}" for value in ("0-0", "0-3", "0-5", "0-7", "1-0")
    ]
    records = [json.loads(path.read_text()) for path in (tiny / "out/records").iterdir()]
    assert len(records) == 11
    (floor,) = (each for each in records if each["settings"]["changes"].get("dim", 8) is None)
    records.remove(floor)
    assert floor["settings"]["changes"] == {"dim": None, "pooling.name": "average", "training.iterations": 0}
    for metric in ("map_at_r", "recall_at_1"):
        mean = np.average(list(floor["classes"][metric].values()), weights=list(floor["images"].values()))
        assert getattr(results.floors[0], metric) == pytest.approx(mean, abs=2e-5)
    assert [(each.network, each.split) for each in results.floors] == [("small", "random")]
    for row, value in zip(study.rows.values(), (0.0, 0.3, 0.5, 0.7, 1.0), strict=True):
        of_row = [each for each in records if each["settings"]["changes"]["koleo_weight"] == value]
        means = [
            np.average(list(each["classes"]["map_at_r"].values()), weights=list(each["images"].values()))
            for each in of_row
        ]
        assert row.map_at_r.mean == pytest.approx(np.mean(means), abs=2e-5)
        assert row.map_at_r.deviation == pytest.approx(np.std(means, ddof=1), abs=2e-5)
        assert (row.effect is None) == (row.verdict is None) == (value == 0.0)
        if row.effect is not None:
            first = next(iter(study.rows.values()))
            assert row.effect.difference == pytest.approx(row.map_at_r.mean - first.map_at_r.mean, abs=4e-5)
            assert row.verdict == "too few classes to decide"
    assert [row.printed for row in study.rows.values()] == [70.3, 70.7, 71.4, 70.1, 71.1]


def test_printed_numbers_have_one_named_data_set() -> None:
    page = markdown(load_studies())
    assert "| printed (sop, Recall@1) |" in page
    results = load_studies().studies
    for study, row, number in (("irt-table-3", "IRT_O", 52.8), ("irt-table-9", "Max Pool", 82.2)):
        (printed,) = (each.printed for each in results[study].rows.values() if each.label == row)
        assert printed == number, "the column of SOP"


def test_the_features_of_an_orthogonal_head_without_training_are_the_floor() -> None:
    """IRT_O has an orthogonal square projection of the class token, which changes no similarity."""
    results = load_studies()
    floors = [floor for floor in results.floors if floor.network == "vit-tiny"]
    assert len(floors) == 2
    start = next(row for row in results.studies["irt-table-3"].rows.values() if row.label == "IRT_O")
    for metric in ("map_at_r", "recall_at_1"):
        mean = np.mean([getattr(floor, metric) for floor in floors])
        assert mean == pytest.approx(getattr(start, metric).mean, abs=2e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("lambda-0-0", "lambda-0-2"), "unknown row irt-table-5-deit-s-beta-0-1-lambda-0-2 in `reference`"),
        (("[small]", "[big]"), "unknown network big"),
        (("irt-table-5:", "irt-tabel-5:"), "There is no study irt-tabel-5"),
        (("recipe:", "recip:"), r"irt-table-5.recip: Extra inputs"),
    ],
)
def test_refuses_a_file_with_a_mistake(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    path = tmp_path / "studies.yaml"
    path.write_text(STUDY.replace(*change))
    with pytest.raises(UserError, match=message):
        frozen_studies(path)
