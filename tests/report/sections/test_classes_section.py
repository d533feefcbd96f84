"""Single classes: the hardest first, scores and confusions counted from the files."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.report.conftest import EACH, METHODS
from tests.report.page_reader import Element, read_page
from unseen.data.shards import Shards
from unseen.report.dataset import DataSet
from unseen.report.page import template_environment
from unseen.report.pictures import Pictures
from unseen.report.sections import classes


def test_the_hardest_classes_come_first_with_their_mean_of_every_method(page: Element, project: Path) -> None:
    shards = Shards(project / "shards/birds")
    means = {}
    for method in METHODS:
        table = pq.read_table(project / f"evaluation/birds/{method}/0/queries.parquet").to_pandas()
        means[method] = table.groupby("label")["ap_at_r"].mean()
    lowest = means["good"].sort_values(kind="stable").index.tolist()[: classes.COUNT]
    section = page.first("details", **{"class": "classes"})
    rows = section.all("tr", **{"data-class": None})
    assert [row["data-class"] for row in rows] == [shards.class_names[label] for label in lowest]
    for row, label in zip(rows, lowest, strict=True):
        expected = [str(EACH), *(f"{100 * means[method][label]:.1f}" for method in METHODS)]
        assert [cell.text() for cell in row.all("td")] == expected


def test_confusions_are_counted_over_all_seeds(
    birds: DataSet, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = Shards(project / "shards/birds")
    runs = birds.runs("poor")
    counts: Counter[tuple[int, int]] = Counter()
    for row in pq.read_table(project / "evaluation/birds/poor/0/neighbours.parquet").to_pylist():
        query, nearest = shards.labels[row["row_id"]], shards.labels[row["neighbours"][0]]
        if query != nearest:
            counts[int(query), int(nearest)] += 1
    confused = classes.confusions([*runs, *runs], shards.labels)
    assert {(pair.label, pair.other): pair.count for pair in confused} == {
        pair: 2 * count for pair, count in counts.items()
    }
    assert [pair.count for pair in confused] == sorted((pair.count for pair in confused), reverse=True)
    assert {pair.queries for pair in confused} == {2 * EACH}
    assert max(pair.count for pair in confused) > 1
    monkeypatch.setattr(DataSet, "best", property(lambda _: SimpleNamespace(method="poor")))
    listed = classes.content(birds)
    assert listed is not None
    part = read_page(
        template_environment(Pictures()).get_template("classes.html").render(dataset=birds, **listed)
    )
    shares = [row.all("td")[-1].text() for row in part.all("tr", **{"data-confusion": None})]
    most = confused[: classes.COUNT]
    assert shares == [f"{100 * pair.count / pair.queries:.1f}%" for pair in most]


def test_means_over_seeds_and_no_lone_queries(birds: DataSet) -> None:
    (first,), (second,) = birds.runs("fair"), birds.runs("good")
    of_first, of_second = classes.scores_of([first]), classes.scores_of([second])
    assert of_first != of_second
    for label, (mean, queries) in classes.scores_of([first, second]).items():
        assert mean == pytest.approx((of_first[label][0] + of_second[label][0]) / 2)
        assert queries == of_first[label][1]
    assert np.isclose(np.mean([mean for mean, _ in of_first.values()]), first.metrics["map_at_r"])


def test_a_ground_truth_without_classes_has_no_section(
    birds: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DataSet, "is_landmarks", property(lambda _: True))
    assert classes.content(birds) is None
