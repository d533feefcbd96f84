"""The tables are consistent with each other and with the text of the papers. A misread cell would break
this."""

from itertools import combinations, pairwise

import pytest

from unseen.experiments.printed.model import Row, papers, rows

ROWS = rows()


def row_of(paper: str, table: str, name: str, dataset: str, **conditions: object) -> Row:
    """The only row of that name for a data set. Conditions distinguish rows with the same name."""
    matches = [
        row
        for row in ROWS
        if (row.paper, row.table, row.name, row.dataset) == (paper, table, name, dataset)
        and all(getattr(row, key) == value for key, value in conditions.items())
    ]
    assert len(matches) == 1, (paper, table, name, dataset, conditions, len(matches))
    return matches[0]


def values(row: Row) -> list[float]:
    return [number.value for number in row.metrics.values()]


def test_recall_never_decreases_with_k() -> None:
    checked = 0
    for row in ROWS:
        recall = sorted(
            (int(name.rpartition("_")[2]), number.value)
            for name, number in row.metrics.items()
            if name.startswith("recall_at_")
        )
        assert all(previous[1] <= next_value[1] for previous, next_value in pairwise(recall)), row
        checked += len(recall) > 1
    assert checked > 150


def test_percent_lies_in_its_range() -> None:
    for row in ROWS:
        for name, number in row.metrics.items():
            top = 5 if name in ("embedding_density", "spectral_decay") else 100
            assert 0 < number.value <= top, row
            assert number.deviation is None or 0 < float(number.deviation) < 1, row


def test_map_at_r_stays_below_precision_at_1() -> None:
    rows = [row for row in ROWS if {"map_at_r", "recall_at_1"} <= row.metrics.keys()]
    assert len(rows) > 180
    for row in rows:
        assert row.metrics["map_at_r"].value < row.metrics["recall_at_1"].value, row


def test_hard_landmarks_have_lower_map_than_medium_ones() -> None:
    for row in ROWS:
        for benchmark in ("roxford5k", "rparis6k"):
            if f"{benchmark}_hard_map" in row.metrics:
                assert (
                    row.metrics[f"{benchmark}_hard_map"].value < row.metrics[f"{benchmark}_medium_map"].value
                ), row


def test_concatenated_embeddings_are_better_than_separated_ones() -> None:
    """For every loss and pooling of GSP. Exchanged columns would fail."""
    for row in (row for row in ROWS if row.setting == "mlrc-concatenated"):
        separated = row_of("gsp", row.table, row.name, row.dataset, setting="mlrc-separated")
        for name in row.metrics.keys() & separated.metrics.keys():
            assert row.metrics[name].value > separated.metrics[name].value, (row, name)


def test_precision_and_map_of_gsp_rise_together() -> None:
    """Within a column of GSP table 2, the ratio of P@1 to MAP@R varies little, except for the misprinted
    cell."""
    for dataset in ("sop", "inshop", "cub", "cars"):
        for setting in ("mlrc-separated", "mlrc-concatenated"):
            column = [
                row
                for row in ROWS
                if (row.paper, row.table, row.dataset, row.setting) == ("gsp", "2", dataset, setting)
            ]
            assert len(column) == 25
            rows = [row for row in column if {"map_at_r", "recall_at_1"} <= row.metrics.keys()]
            ratios = {
                row.name: row.metrics["recall_at_1"].value / row.metrics["map_at_r"].value for row in rows
            }
            middle = sorted(ratios.values())[len(ratios) // 2]
            outliers = {name for name, ratio in ratios.items() if not 0.75 < ratio / middle < 1.25}
            doubted = {row.name for row in rows if not row.metrics["recall_at_1"].reliable}
            assert (
                outliers
                == doubted
                == ({"C2 + DeLF"} if (dataset, setting) == ("sop", "mlrc-separated") else set())
            )


def crt_and_best_quoted(table: str, dataset: str) -> tuple[list[float], list[float]]:
    """The numbers of CRT in one of its tables, and the best quoted number of each metric."""
    crt = row_of("crt", table, "Ours: CRT", dataset)
    quoted = [
        row for row in ROWS if (row.paper, row.table, row.dataset) == ("crt", table, dataset) and row.quoted
    ]
    return values(crt), [
        max(row.metrics[name].value for row in quoted if name in row.metrics) for name in crt.metrics
    ]


def test_gains_printed_by_crt() -> None:
    printed = {
        "GoogLeNet": ([2.7, 1.89, 1.98], [2.01, 1.59, 1.53], [0.96, 0.68, 0.32], [0.98, 0.1, 0.12]),
        "BN-Inception": ([3.83, 4.13, 2.87], [0.79, 0.88, 0.45], [1.55, 0.58, 0.21], [0.77, 0.09, 0.13]),
        "ResNet-50": ([1.56, 1.89, 0.92], [3.37, 2.13, 1.47], [2.48, 1.77, 0.85], [2.27, 1.25, 0.98]),
        "DeiT-S": ([2.39, 1.4, 0.45], [2.06, 1.61, 1.14], [2.04, 1.02, 0.33], [0.84, 0.26, 0.14]),
        "MiT-B1": ([3.7, 2.62, 1.72], [2.24, 1.94, 1.24], [2.65, 1.47, 0.53], [1.31, 0.47, 0.29]),
    }
    for network, gains in printed.items():
        for dataset, gain in zip(("cub", "cars", "sop", "inshop"), gains, strict=True):
            with_crt, without = (
                row_of("crt", "5", f"{network}, +CRT", dataset),
                row_of("crt", "5", f"{network}, MS", dataset),
            )
            if (network, dataset) == ("ResNet-50", "cub"):
                assert "1.89" in with_crt.note, "the only printed gain that differs from its two rows"
                gain[1] = 1.81
            assert [b - a for a, b in zip(values(without), values(with_crt), strict=True)] == pytest.approx(
                gain, abs=1e-9
            ), (network, dataset)
    best = {
        ("cub", "3"): ([4.28, 2.18, 1.51, 0.94], "Hyp-DeiT"),
        ("inshop", "4"): ([1.68, 0.87, 0.58, 0.45], "IBC"),
    }
    for (dataset, table), (gain, second) in best.items():
        crt, top = crt_and_best_quoted(table, dataset)
        assert [a - b for a, b in zip(crt, top, strict=True)] == pytest.approx(gain, abs=1e-9)
        assert row_of("crt", table, second, dataset).metrics["recall_at_1"].value <= top[0]
    for dataset, table, gain in (
        ("cars", "3", [0.76, 0.92, 0.29, -0.17]),
        ("sop", "4", [-1.09, 0.26, 0.16, 0.11]),
    ):
        crt, top = crt_and_best_quoted(table, dataset)
        assert [a - b for a, b in zip(crt, top, strict=True)] == pytest.approx(gain, abs=1e-9)


def test_rows_repeated_by_crt_are_equal() -> None:
    proposed = [
        row_of("crt", table, name, "cub")
        for table, name in (("6", "The Proposed Method"), ("7", "w"), ("9", "K2 = 64"), ("10", "w"))
    ]
    assert all(row.metrics == proposed[0].metrics and row.recipe == proposed[0].recipe for row in proposed)
    assert values(proposed[0])[:3] == values(row_of("crt", "5", "MiT-B1, +CRT", "cub"))
    assert row_of("crt", "8", "K1 = 64", "cub").metrics == row_of("crt", "10", "w/o", "cub").metrics
    baseline, without = row_of("crt", "6", "-CRT-Consistency", "cub"), row_of("crt", "6", "-CRT", "cub")
    assert values(baseline)[:3] == values(row_of("crt", "5", "MiT-B1, MS", "cub"))
    assert values(proposed[0])[0] - values(without)[0] == pytest.approx(1.98)
    assert values(without)[0] - values(baseline)[0] == pytest.approx(1.72), "1.69 in the text"
    assert "1.72" in baseline.note


def test_text_of_multihead_agrees_with_its_tables() -> None:
    """Its gains in Recall@1 on Cars, 2.3, 5.3 and 2.4 points, and on In-Shop."""
    for dim, lead in ((64, 2.3), (128, 5.3), (512, 2.4)):
        table = [
            row
            for row in ROWS
            if (row.paper, row.table, row.dataset, row.dim) == ("multihead", "1", "cars", dim)
        ]
        multihead = row_of("multihead", "1", "Ours", "cars", dim=dim)
        best = max(row.metrics["recall_at_1"].value for row in table if row.quoted)
        assert multihead.metrics["recall_at_1"].value - best == pytest.approx(lead)
    multihead = row_of("multihead", "3", "Ours", "inshop", dim=512).metrics["recall_at_1"].value
    assert multihead - row_of("multihead", "3", "Proxy-Anchor", "inshop", dim=512).metrics[
        "recall_at_1"
    ].value == pytest.approx(1.6)
    assert multihead - row_of("multihead", "3", "ProxyNCA++", "inshop").metrics[
        "recall_at_1"
    ].value == pytest.approx(2.7)
    for dataset, value in (("cars", 90.1), ("cub", 70.6)):
        assert row_of("multihead", "1", "Ours", dataset, dim=512).metrics["recall_at_1"].value == value, (
            "quoted in section 4.5"
        )


def test_the_two_tables_of_gsp_agree() -> None:
    names = {"neither": "C2 + GAP", "L_ZS and GSP": "C2 + GSP"}
    for row in (row for row in ROWS if (row.paper, row.table) == ("gsp", "1") and row.name in names):
        complete_row = row_of("gsp", "2", names[row.name], row.dataset, setting=row.setting)
        assert row.metrics["map_at_r"].text == complete_row.metrics["map_at_r"].text, row


def test_gsp_gains_over_average_pooling() -> None:
    """Gains in MAP@R under every loss and on every data set. With XBM, the gain on SOP is about two points,
    as the text states."""
    for loss in ("C2", "MS", "Triplet", "PNCA", "PAnchor", "C1 + XBM"):
        for row in (
            row
            for row in ROWS
            if row.paper == "gsp" and row.name == f"{loss} + GSP" and "map_at_r" in row.metrics
        ):
            average = row_of("gsp", "2", f"{loss} + GAP", row.dataset, setting=row.setting)
            assert row.metrics["map_at_r"].value > average.metrics["map_at_r"].value
            if loss == "C1 + XBM" and row.dataset == "sop":
                assert row.metrics["map_at_r"].value - average.metrics["map_at_r"].value == pytest.approx(
                    2.1, abs=0.05
                )


def test_text_of_irt_agrees_with_table_2() -> None:
    """Its gains in Recall@1: 2.6 on SOP, 2.5 on CUB, 1.9 more with distillation, 0.2 and 0.6 on In-Shop."""
    for dataset, own_lead, distilled_lead in (("sop", 2.6, 2.8), ("cub", 2.5, 4.4), ("inshop", 0.2, 0.6)):
        baselines = [
            row for row in ROWS if (row.paper, row.table, row.dataset) == ("irt", "2", dataset) and row.quoted
        ]
        best = max(row.metrics["recall_at_1"].value for row in baselines)
        for name, lead in (("IRT_R", own_lead), ("IRT_R, distilled", distilled_lead)):
            assert row_of("irt", "2", name, dataset).metrics["recall_at_1"].value - best == pytest.approx(
                lead
            ), (dataset, name)


def test_rows_repeated_by_irt_are_equal() -> None:
    for dataset in ("sop", "cub", "inshop"):
        assert (
            values(row_of("irt", "3", "IRT_R", dataset)) == values(row_of("irt", "2", "IRT_R", dataset))[:1]
        )
    assert (
        values(row_of("irt", "4", "R50, Contr.", "sop"))
        == values(row_of("irt", "5", "R50, beta 0.5, lambda 0.0", "sop"))
        == [79.8]
    )
    assert (
        values(row_of("irt", "4", "DeiT-S, Contr.", "sop"))
        == values(row_of("irt", "5", "DeiT-S, beta 0.5, lambda 0.0", "sop"))
        == [83.0]
    )
    assert values(row_of("irt", "5", "DeiT-S, beta 0.5, lambda 0.7", "sop")) == [84.0]
    assert max(values(row)[0] for row in ROWS if (row.paper, row.table) == ("irt", "5")) == 84.4
    assert (
        row_of("irt", "3", "IRT_L", "landmarks").metrics
        == row_of("irt", "6", "lambda 0.0", "landmarks").metrics
    )
    assert (
        row_of("irt", "3", "IRT_R", "landmarks").metrics
        == row_of("irt", "6", "lambda 4.0", "landmarks").metrics
    )
    assert row_of("irt", "3", "IRT_L", "landmarks").metrics == row_of("irt", "9", "CLS", "landmarks").metrics
    for dim in (128, 768):
        last = row_of("irt", "7", "DeiT-B distilled, CLS", "landmarks", size=384, dim=dim)
        assert last.metrics == row_of("irt", "8", "IRT_L", "landmarks", dim=dim).metrics


def test_quoted_rows_agree_or_have_a_note() -> None:
    """The same method, dimensions and data set in two papers have equal numbers, unless a note explains a
    difference."""
    quoted = [row for row in ROWS if row.quoted or (row.paper == "irt" and row.table == "2")]
    compared = 0
    for a, b in combinations(quoted, 2):
        comparable = a.paper != b.paper and (a.name, a.dataset, a.dim, a.reduced) == (
            b.name,
            b.dataset,
            b.dim,
            b.reduced,
        )
        if not comparable or (a.backbone != b.backbone and None not in (a.backbone, b.backbone)):
            continue
        for name in a.metrics.keys() & b.metrics.keys():
            compared += 1
            assert a.metrics[name].text == b.metrics[name].text or a.note or b.note, (
                a.source,
                b.source,
                a.name,
                name,
            )
    assert compared > 60


@pytest.mark.parametrize(
    ("table", "name", "dataset", "metric"),
    [
        (("crt", "3"), "A-BIER", "cub", "recall_at_8"),
        (("multihead", "1"), "MS", "cars", "recall_at_1"),
        (("gsp", "2"), "C2 + DeLF", "sop", "recall_at_1"),
        (("irt", "2"), "SoftTriple", "sop", "recall_at_1"),
    ],
)
def test_misprints_are_marked(table: tuple[str, str], name: str, dataset: str, metric: str) -> None:
    rows_of_name = [
        row for row in ROWS if (row.paper, row.table, row.name, row.dataset) == (*table, name, dataset)
    ]
    assert [
        row for row in rows_of_name if metric in row.metrics and not row.metrics[metric].reliable and row.note
    ]


def test_softtriple_on_sop_equals_ms_on_cars() -> None:
    """Both are marked because they have the same four numbers with two names and two data sets."""
    on_sop, on_cars = row_of("irt", "2", "SoftTriple", "sop"), row_of("multihead", "1", "MS", "cars", dim=64)
    assert values(on_sop) == values(on_cars)
    assert not any(number.reliable for row in (on_sop, on_cars) for number in row.metrics.values())


def test_illegible_cells_are_empty() -> None:
    unreadable = {(row.source, row.name, row.dataset, *row.unreadable) for row in ROWS if row.unreadable}
    assert unreadable == {
        ("GSP table 2", "C1 + XBM + GAP", "cub", "recall_at_1"),
        ("GSP table 2", "C2 + GSP", "sop", "recall_at_1"),
        ("GSP table 2", "C2 + DeLF", "cub", "recall_at_1"),
        ("GSP table 2", "C2 + GMP", "cars", "recall_at_1"),
        ("GSP table 2", "C2 + GMP + GAP", "cub", "recall_at_1"),
        ("GSP table 2", "MS + GSP", "inshop", "map_at_r"),
        ("GSP table 2", "Triplet + GSP", "inshop", "map_at_r"),
        ("GSP table 2", "PNCA + GMP + GSP", "cub", "recall_at_1"),
        ("IRT table 8", "[1]-GeM", "landmarks", "rparis6k_hard_map"),
    }


@pytest.mark.parametrize(
    ("paper", "counts"),
    [
        ("crt", {"1": 2, "2": 2, "3": 14, "4": 15, "5": 10, "6": 3, "7": 2, "8": 4, "9": 5, "10": 2}),
        ("multihead", {"1": 19, "2": 18, "3": 12, "section 4.5": 1}),
        ("gsp", {"1": 4, "2": 25}),
        ("irt", {"2": 20, "3": 3, "4": 6, "5": 10, "6": 6, "7": 18, "8": 7, "9": 4}),
    ],
)
def test_no_row_is_missing(paper: str, counts: dict[str, int]) -> None:
    assert {
        table.table: len(table.rows)
        for one_paper in papers()
        if one_paper.key == paper
        for table in one_paper.tables
    } == counts
