"""Published numbers next to measured ones: the correct rows, the correct differences, and all differing
conditions."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.params import resolve
from tests.report.page_reader import Element
from unseen.config.document import Params
from unseen.experiments.printed.model import Row, published
from unseen.report.dataset import styles_of
from unseen.report.report_data import ReportData, RunResults
from unseen.report.sections.published import merged, published_tables
from unseen.report.summary import summarize

PARAMS = Params(Path(__file__).resolve().parents[3] / "params.yaml")
MEASURED = {"recall_at_1": 0.65, "recall_at_2": 0.75, "recall_at_4": 0.85, "map_at_r": 0.25}
REDUCED = {f"reduced_{name}": value - 0.02 for name, value in MEASURED.items()}
ENSEMBLE = {
    f"{kind}_{name}": value
    for kind, share in (("separated", 0.58), ("concatenated", 0.66))
    for name, value in (
        ("recall_at_1", share),
        ("map_at_r", share - 0.4),
        ("dimensions", 128 if kind == "separated" else 512),
    )
}


def inputs_of(
    dataset: str,
    method: str,
    width: int,
    metrics: dict[str, float] = MEASURED,
    ensemble: bool = False,
    **settings: object,
) -> tuple[ReportData, dict[str, Any]]:
    no_validation = {"training.patience": None, "schedule.name": "constant"}
    protocol_of_papers = {"training.protocol": "published", **no_validation}
    given = {key.replace("__", "."): value for key, value in settings.items()}
    recipe = resolve(PARAMS, dataset, method, protocol_of_papers | given).model_dump(mode="json")
    empty = pa.table({})
    protocol = {"reduction": "reduced_*: to 128 dimensions, whitening none"}
    run = RunResults(dataset, method, 0, metrics, [], {"recipe": recipe}, protocol, empty, Path(), empty, {})
    row = {
        "dataset": dataset,
        "method": method,
        "seed": 0,
        "network": "selected",
        "dim": width,
        "embedding_density": 0.7,
        "spectral_decay": 0.3,
    }
    ensembles = {(dataset, method): ENSEMBLE} if ensemble else {}
    return ReportData((dataset,), (method,), (0,), [run], {}, [{"row": row}], [], ensembles), metrics


def section(
    dataset: str,
    method: str,
    width: int,
    metrics: dict[str, float] = MEASURED,
    ensemble: bool = False,
    **settings: object,
) -> Any:
    inputs, metrics = inputs_of(dataset, method, width, metrics, ensemble, **settings)
    return published_tables(
        inputs, dataset, summarize([(method, metrics)], [method]), styles_of([method], "set-0")
    )


def line(blocks: list[dict[str, Any]], sources: str, name: str) -> dict[str, Any]:
    rows = [
        row for block in blocks for row in block["rows"] if (row["sources"], row["name"]) == (sources, name)
    ]
    assert len(rows) == 1, [(row["sources"], row["name"]) for block in blocks for row in block["rows"]]
    return rows[0]


def cells(row: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {cell["metric"]: (cell["value"], cell["difference"]) for cell in row["cells"] if cell["value"]}


def test_the_setting_of_the_paper_has_a_difference() -> None:
    tables = section("cub", "ms", 512)
    row = line(tables["shown"], "CRT table 3, Multi-Head table 1, IRT table 2", "MS")
    assert cells(row) == {
        "recall_at_1": ("65.7", "−0.7"),
        "recall_at_2": ("77.0", "−2.0"),
        "recall_at_4": ("86.3", "−1.3"),
        "recall_at_8": ("91.2", ""),
    }, "Recall@8 was not measured: no difference"
    assert row["differences"] == []
    assert row["unstated"] == "image size"
    assert row["notes"] == ["The paper prints R50; MS was published with BN-Inception."]
    density = line(tables["collapsed"], "CRT table 1", "Baseline")
    assert cells(density) == {"embedding_density": ("0.72", "−0.02")}, "no percent"
    assert density["differences"][0] == "mit_b2 in the paper, bn_inception here"
    block = tables["shown"][0]
    assert block["conditions"] == "bn_inception, 512 dimensions, 227 pixels, protocol published"
    assert dict(zip(tables["columns"], block["cells"], strict=True)) == {
        "Recall@1": "65.0", "Recall@2": "75.0", "Recall@4": "85.0", "Recall@8": "–", "MAP@R": "25.0",
        "embedding density": "0.70", "spectral decay": "0.30",
    }  # fmt: skip


def test_a_differing_protocol_is_a_condition() -> None:
    """Networks of the papers train on all train classes, those of MLRC and of the landmark set do not."""

    def differences(dataset: str, method: str, source: str, name: str, **settings: object) -> list[str]:
        return list(line(section(dataset, method, 512, **settings)["shown"], source, name)["differences"])

    sources = "CRT table 3, Multi-Head table 1, IRT table 2"
    refit = differences("cub", "ms", sources, "MS", training__protocol="refit")
    selected = differences("cub", "ms", sources, "MS", training__protocol="selected")
    assert [text.partition(" (")[0] for text in refit + selected] == [
        "all train classes in the paper, protocol refit here",
        "all train classes in the paper, protocol selected here",
    ]
    landmarks = section("landmarks", "irt_r", 384, {"roxford5k_medium_map": 0.35})
    (text,) = line(landmarks["shown"], "IRT table 6", "lambda 4.0")["differences"]
    assert text.startswith("held-out classes for validation in the paper, protocol published here")
    untrained = section("cub", "irt_o", 384, training__protocol="selected")
    assert not any("protocol" in text for row in untrained["shown"][0]["rows"] for text in row["differences"])


def test_names_differing_conditions() -> None:
    """The published network and dimensions against a small one, trained on a laptop."""
    tables = section("cub", "ms", 128, backbone__name="resnet18", dim=128, input__size=64, input__resize=72)
    row = line(tables["shown"], "CRT table 3, Multi-Head table 1, IRT table 2", "MS")
    assert row["differences"] == [
        "bn_inception in the paper, resnet18 here",
        "512 dimensions in the paper, 128 here",
    ]
    row = line(tables["collapsed"], "CRT table 5", "BN-Inception, MS")
    assert row["differences"] == [
        "bn_inception in the paper, resnet18 here",
        "227 pixels in the paper, 64 here",
    ]

    scratch = section("cub", "crt", 128, backbone__pretrained=False)
    assert line(scratch["shown"], "CRT table 3", "Ours: CRT")["differences"] == [
        "ImageNet weights in the paper, random weights here"
    ]


def test_a_row_with_other_settings_is_shown_if_the_run_has_them() -> None:
    tables = section("cub", "ms", 128, backbone__name="resnet50.tv_in1k", dim=128, pooling__name="average")
    assert line(tables["shown"], "CRT table 5", "ResNet-50, MS")["differences"] == []
    row = line(tables["collapsed"], "CRT table 5", "BN-Inception, MS")
    assert row["differences"] == ["bn_inception in the paper, resnet50.tv_in1k here"]


def test_weights_differ_if_the_row_names_them() -> None:
    tables = section("cub", "ms", 128, backbone__name="resnet50.a1_in1k", dim=128, pooling__name="average")
    row = line(tables["collapsed"], "CRT table 5", "ResNet-50, MS")
    assert row["differences"] == ["resnet50.tv_in1k in the paper, resnet50.a1_in1k here"]
    tagged = section("cub", "irt_r", 384, backbone__name="deit_small_patch16_224.fb_in1k")
    named = [text for block in tagged["shown"] for row in block["rows"] for text in row["differences"]]
    assert not any("deit_small" in text for text in named)


def test_settings_that_differ_are_named() -> None:
    single = section("cub", "multihead", 512, heads="single")
    assert line(single["shown"], "Multi-Head section 4.5", "single head")["differences"] == []
    assert line(section("cub", "multihead", 512)["collapsed"], "Multi-Head section 4.5", "single head")[
        "differences"
    ] == ["heads single in the paper, both here"]
    margin = section("sop", "irt_r", 384, loss__margin=0.9, koleo_weight=0.3)
    assert line(margin["shown"], "IRT table 5", "DeiT-S, beta 0.9, lambda 0.3")["differences"] == []
    pairs = section("sop", "irt_r", 384, loss__name="multi_similarity", koleo_weight=0.3)
    assert line(pairs["collapsed"], "IRT table 5", "DeiT-S, beta 0.9, lambda 0.3")["differences"] == [
        "loss.margin 0.9 in the paper, not set here"
    ]


def test_ensembles_are_compared_with_ensembles() -> None:
    single = section("cub", "gsp", 128)
    rows = [row for block in single["shown"] for row in block["rows"]]
    assert [row["differences"] for row in rows] == [
        [
            "512 dimensions in the paper, 128 here",
            "MLRC in the paper (concatenated, 4 networks), one network here",
        ],
        ["MLRC in the paper (separated, 4 networks), one network here"],
    ]
    with_ensemble = section("cub", "gsp", 128, ensemble=True)
    assert [(block["kind"], block["conditions"]) for block in with_ensemble["shown"]] == [
        (", separated", "bn_inception, 128 dimensions, 227 pixels, protocol selected"),
        (", concatenated", "bn_inception, 512 dimensions, 227 pixels, protocol selected"),
    ]
    separated, concatenated = (block["rows"][0] for block in with_ensemble["shown"])
    assert separated["differences"] == concatenated["differences"] == []
    assert cells(separated) == {"recall_at_1": ("57.39", "+0.6"), "map_at_r": ("20.34", "−2.3")}
    assert cells(concatenated) == {"recall_at_1": ("65.50", "+0.5"), "map_at_r": ("25.09", "+0.9")}


def test_reduced_numbers_are_compared_with_reduced_ones() -> None:
    without, with_reduced = (
        section("cub", "irt_r", 384),
        section("cub", "irt_r", 384, metrics=MEASURED | REDUCED),
    )
    assert line(without["shown"], "IRT table 2", "IRT_R, reduced to 128")["differences"] == [
        "128 dimensions in the paper, 384 here",
        "reduced by PCA in the paper, not reduced here",
    ]
    reduced = next(block for block in with_reduced["shown"] if block["kind"] == ", reduced")
    assert reduced["rows"][0]["differences"] == []
    assert cells(reduced["rows"][0])["recall_at_1"] == ("72.6", "−9.6")


def test_landmark_benchmarks_are_compared_by_their_own_numbers() -> None:
    metrics = {"roxford5k_medium_map": 0.35, "rparis6k_medium_map": 0.65}
    tables = section("landmarks", "irt_r", 384, metrics=metrics, training__protocol="selected")
    row = line(tables["shown"], "IRT table 3", "IRT_R")
    assert cells(row)["roxford5k_medium_map"] == ("34.0", "+1.0")
    assert cells(row)["rparis6k_hard_map"] == ("40.2", "")
    assert line(tables["shown"], "IRT table 6", "lambda 4.0")["differences"] == []
    assert line(tables["collapsed"], "IRT table 6", "lambda 1.0")["differences"] == [
        "koleo_weight 1.0 in the paper, 4.0 here"
    ]


def test_a_doubtful_cell_is_marked_and_has_no_difference() -> None:
    tables = section("cars", "ms", 64, dim=64)
    row = line(tables["shown"], "Multi-Head table 1", "MS")
    assert cells(row)["recall_at_1"] == ("78.6†", "")
    assert row["notes"]
    assert tables["doubtful"]
    assert not section("cub", "crt", 128)["doubtful"]


def test_a_baseline_in_the_setting_of_another_recipe_names_it() -> None:
    tables = section("cub", "xbm", 128)
    rows = [row for block in tables["collapsed"] for row in block["rows"] if row["name"] == "C1 + XBM + GAP"]
    assert len(rows) == 2
    assert all("trained with recipe gsp_xbm in the paper" in row["differences"] for row in rows)
    assert all(not any("zero_shot" in text for text in row["differences"]) for row in rows), (
        "its settings equal those of the other recipe"
    )


def test_each_paper_states_its_selection_once() -> None:
    selection = section("cub", "crt", 128)["selection"]
    assert len(selection) == 1
    assert selection[0].startswith("CRT: ")
    assert "test classes" in selection[0]
    assert [text.split(":")[0] for text in section("cub", "ms", 512)["selection"]] == [
        "CRT",
        "Multi-Head",
        "GSP",
        "IRT",
    ]


@pytest.mark.parametrize(("dataset", "method"), [("parts", "ms"), ("folder", "crt"), ("cub", "snca")])
def test_without_published_rows_there_is_no_section(dataset: str, method: str) -> None:
    assert section(dataset, method, 64) is None


def test_equal_rows_are_merged() -> None:
    rows = published("cub", "ms")
    groups = merged(rows)
    assert sorted(map(id, (row for group in groups for row in group))) == sorted(map(id, rows)), (
        "every row occurs exactly once"
    )
    names = [{row.source for row in group} for group in groups if len(group) > 1]
    assert names == [{"CRT table 3", "Multi-Head table 1", "IRT table 2"}, {"CRT table 5", "CRT table 6"}]
    assert all(
        _agree(group)
        for dataset in ("cub", "cars", "sop", "inshop", "landmarks")
        for group in merged(published(dataset, "irt_l"))
    )


def _agree(group: list[Row]) -> bool:
    texts: dict[str, set[str]] = {}
    for row in group:
        for name, number in row.metrics.items():
            texts.setdefault(name, set()).add(number.text)
    return all(len(values) == 1 for values in texts.values())


@pytest.mark.slow
def test_only_published_data_sets_have_the_section(
    papers_page: Element, papers_inputs: ReportData, html: str
) -> None:
    part = papers_page.first("section", id="set-0-published")
    row = part.first("tr", **{"data-published": "CRT table 3, Multi-Head table 1, IRT table 2"})
    measured = papers_inputs.of("cub", "ms")[0].metrics["recall_at_1"]
    expected = f"65.7{100 * measured - 65.7:+.1f}".replace("-", "−")
    assert row.first("td", **{"data-metric": "recall_at_1"}).text() == expected
    assert papers_page.first("nav").all("a", href="#set-0-published")
    assert len(part.all("details")) == 1
    assert "Published numbers" not in html


def rows_of(part: Element, method: str) -> list[Element]:
    """The published rows below the numbers of a method, in both tables."""
    rows = []
    for table in part.all("tbody"):
        of_method = False
        for row in table.all("tr"):
            if "data-ours" in row.attributes:
                of_method = row["data-ours"] == method
            elif of_method:
                rows.append(row)
    return rows


def test_a_variant_has_the_rows_of_its_parent(papers_page: Element) -> None:
    part = papers_page.first("section", id="set-0-published")
    parent, variant = (rows_of(part, method) for method in ("gsp", "gsp-soft"))
    assert [row["data-published"] for row in variant] == [row["data-published"] for row in parent]
    assert len(variant) == 4
    for row, parent_row in zip(variant, parent, strict=True):
        named = [line.text() for line in row.all("div", **{"class": "differs"})]
        assert named[-2:] == [
            "pooling.epsilon 1 here, 5 in gsp",
            "training.iterations 70 here, 20,000 in gsp",
        ]
        assert named[:-2] == [line.text() for line in parent_row.all("div", **{"class": "differs"})]
    header = part.first("tr", **{"data-ours": "gsp-soft"}).first("th")
    assert header.text() == "gsp-softlike gsp"


def test_a_variant_without_its_parent_is_named_as_a_variant(papers_inputs: ReportData) -> None:
    inputs = replace(papers_inputs, methods=("gsp-soft",))
    run = inputs.of("cub", "gsp-soft")[0]
    summary = summarize([("gsp-soft", run.metrics)], ("gsp-soft",))
    tables = published_tables(inputs, "cub", summary, styles_of(["gsp-soft"], "set-0", inputs.like))
    assert tables is not None
    rows = [row for block in tables["shown"] for row in block["rows"]]
    assert rows
    assert all("variant of gsp here; gsp is not in this report" in row["differences"] for row in rows)
