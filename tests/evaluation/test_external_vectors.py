"""Vectors of other tools have the metrics of the graph; files that cannot be evaluated are refused."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.torch_counter import TorchCounter
from tests.vectors import unit
from unseen.data.embeddings import write
from unseen.evaluation.external import Settings, evaluate_files, evaluate_vectors
from unseen.evaluation.run import evaluate_run
from unseen.evaluation.settings import EvaluateSettings
from unseen.evaluation.sides import Sides
from unseen.evaluation.vectors import Vectors, matrix_of, read_vectors, sides_of
from unseen.runtime.errors import UserError

LABELS = np.concatenate([np.repeat(np.arange(12), 5), [20, 21]])


def vectors(noise: float, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    return unit(np.eye(16)[LABELS % 16] + noise * random.standard_normal((len(LABELS), 16)))


def table(x: np.ndarray, labels: Any = LABELS, **columns: Any) -> pa.Table:
    return pa.table({"label": labels, "embedding": list(x), **columns})


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """The embedding files of a run, with ids that have gaps and rows that belong to one side only."""
    ids = np.arange(len(LABELS)) * 3 + 100
    is_query, is_gallery = np.arange(len(LABELS)) % 4 > 0, np.arange(len(LABELS)) % 5 > 0
    for name, noise in (("test", 0.3), ("test-last", 0.4), ("test-untrained", 1.0), ("test-features", 1.5)):
        write(tmp_path / f"{name}.arrow", ids, LABELS, vectors(noise), is_query, is_gallery)
    return tmp_path


def test_metrics_equal_those_of_the_graph_to_the_bit(exported: Path) -> None:
    graph = evaluate_run(exported, EvaluateSettings(class_means=True)).metrics
    (metrics,) = evaluate_files([exported / "test.arrow"], settings=Settings(class_means=True)).metrics
    networks = ("last_", "untrained_", "features_")
    expected = {name: value for name, value in graph.items() if not name.startswith(networks)}
    assert (metrics.pop("training_protocol"), expected.pop("training_protocol")) == ("unknown", "selected")
    assert metrics.pop("protocol") != expected.pop("protocol")
    assert metrics == expected
    assert metrics["lone_queries"] >= 1
    (last,) = evaluate_files([exported / "test-last.arrow"]).metrics
    assert last["map_at_r"] == graph["last_map_at_r"] != metrics["map_at_r"]


def test_no_neighbours_are_searched_for_metrics_alone(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(*_: Any) -> None:
        raise AssertionError("neighbours were searched")

    monkeypatch.setattr("unseen.evaluation.metrics.exact_search", search)
    assert evaluate_vectors(vectors(0.3), LABELS)["queries"] == len(LABELS)
    assert len(evaluate_files([exported / "test.arrow", exported / "test-last.arrow"]).metrics) == 2


def test_a_gpu_counts_with_equal_metrics(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_torch = TorchCounter()
    expected = evaluate_files([exported / "test.arrow"]).metrics
    monkeypatch.setattr("unseen.evaluation.external.tile_counter", lambda: on_torch)
    assert evaluate_files([exported / "test.arrow"]).metrics == expected
    assert len(on_torch.galleries) == 1


def test_defaults_are_those_of_the_graph() -> None:
    graph = EvaluateSettings()
    for field in dataclasses.fields(Settings):
        if field.name != "normalize":
            assert getattr(Settings(), field.name) == getattr(graph, field.name), field.name


def test_every_format_gives_the_same_metrics(tmp_path: Path) -> None:
    x = vectors(0.4)
    text = np.array([f"class {label:02d}" for label in LABELS])
    pq.write_table(table(x, text), tmp_path / "text.parquet")
    pq.write_table(table(x.astype(np.float64)), tmp_path / "double.parquet")
    pq.write_table(
        table(x, pa.array(text).dictionary_encode(), row_id=np.arange(62) * 2),
        tmp_path / "categories.parquet",
    )
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), 16)
    arrow = pa.table({"label": LABELS, "embedding": fixed, "more": LABELS})
    with (
        pa.OSFile(str(tmp_path / "batches.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, arrow.schema) as writer,
    ):
        writer.write_table(arrow, max_chunksize=10)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "labels.npy", LABELS)
    (tmp_path / "labels.txt").write_text("\n".join(text), encoding="utf-8")
    expected = evaluate_vectors(x, LABELS)
    for name in ("text.parquet", "double.parquet", "categories.parquet", "batches.arrow"):
        assert evaluate_files([tmp_path / name]).metrics == [expected], name
    for labels in ("labels.npy", "labels.txt"):
        assert evaluate_files([tmp_path / "x.npy"], tmp_path / labels).metrics == [expected], labels


LISTS = (
    pa.large_list(pa.float32()),
    pa.list_view(pa.float32()),
    pa.large_list_view(pa.float32()),
    pa.list_(pa.float32(), 16),
)
TEXTS = (
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.int8(), pa.large_string()),
)


@pytest.mark.parametrize("of_list", LISTS, ids=str)
@pytest.mark.parametrize("of_text", TEXTS, ids=str)
def test_arrow_streams_of_newer_types(tmp_path: Path, of_list: pa.DataType, of_text: pa.DataType) -> None:
    x = vectors(0.4)
    text = [f"class {label:02d}" for label in LABELS]
    arrow = pa.table({"label": pa.array(text, of_text), "embedding": pa.array(x.tolist(), of_list)})
    with pa.OSFile(str(tmp_path / "x.arrow"), "wb") as sink, pa.ipc.new_stream(sink, arrow.schema) as writer:
        writer.write_table(arrow, max_chunksize=10)
    assert evaluate_files([tmp_path / "x.arrow"]).metrics == [evaluate_vectors(x, LABELS)]


def test_categories_of_text_views(tmp_path: Path) -> None:
    codes, names = pa.array(LABELS), pa.array([f"{label:02d}" for label in range(22)], pa.string_view())
    text = pa.DictionaryArray.from_arrays(codes, names)
    pq.write_table(table(vectors(0.4), LABELS), tmp_path / "x.parquet")
    arrow = pa.table({"label": text, "embedding": pq.read_table(tmp_path / "x.parquet")["embedding"]})
    with pa.OSFile(str(tmp_path / "x.arrow"), "wb") as sink, pa.ipc.new_file(sink, arrow.schema) as writer:
        writer.write_table(arrow)
    assert evaluate_files([tmp_path / "x.arrow"]).metrics == [evaluate_vectors(vectors(0.4), LABELS)]


@pytest.mark.slow
def test_lists_of_more_values_than_one_array_holds() -> None:
    """More than 2^31 values of one byte. The chunks share one buffer; the result has 2 GiB."""
    values = pa.array(np.arange(2**20) % 127, pa.int8())
    chunk = pa.ListArray.from_arrays(pa.array(np.arange(0, 2**20 + 1, 2**10), pa.int32()), values)
    column = pa.chunked_array([chunk] * 2049)
    with pytest.raises(pa.ArrowInvalid, match="offset overflow"):
        column.combine_chunks()
    read = matrix_of(Path("x"), column)
    assert read.shape == (2049 * 2**10, 2**10)
    assert np.array_equal(read[-(2**10) :].ravel(), values.to_numpy())


def test_a_folder_is_its_tables_in_the_order_of_their_names(tmp_path: Path) -> None:
    x, text = vectors(0.4), np.array([f"{label:02d}" for label in LABELS])
    folder = tmp_path / "set"
    (folder / "test").mkdir(parents=True)
    pq.write_table(table(x[:20], text[:20]), folder / "a.parquet")
    pq.write_table(table(x[20:], pa.array(text[20:]).dictionary_encode()), folder / "test" / "b.parquet")
    (folder / "_metadata.parquet").write_text("not read")
    (folder / ".cache").mkdir()
    (folder / ".cache/c.parquet").write_text("not read")
    (folder / "state.json").write_text("{}")
    assert evaluate_files([folder]).metrics == [evaluate_vectors(x, LABELS)]
    pq.write_table(table(x[:2], text[:2], row_id=[0, 1]), folder / "c.parquet")
    with pytest.raises(UserError, match=r"a\.parquet has no column row_id, unlike other files of "):
        read_vectors(folder)
    pq.write_table(table(x[:2, :8], text[:2]), folder / "c.parquet")
    with pytest.raises(UserError, match=r"have vectors of \[\(8,\), \(16,\)\]"):
        read_vectors(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"empty contains no \.parquet, \.pq"):
        read_vectors(tmp_path / "empty")


def test_queries_search_the_gallery_of_a_second_file(tmp_path: Path) -> None:
    """With equal row ids in both files, and as one file with two columns."""
    x, text = vectors(0.5), np.array([f"{label:02d}" for label in LABELS])
    queries = np.arange(62) % 3 == 0
    pq.write_table(table(x, text, is_query=queries, is_gallery=~queries), tmp_path / "one.parquet")
    (expected,) = evaluate_files([tmp_path / "one.parquet"]).metrics
    for name, rows in (("queries", queries), ("gallery", ~queries)):
        ids = np.arange(np.count_nonzero(rows))
        pq.write_table(table(x[rows], text[rows], row_id=ids), tmp_path / f"{name}.parquet")
    paths, galleries = [tmp_path / "queries.parquet"], [tmp_path / "gallery.parquet"]
    assert evaluate_files(paths, galleries=galleries).metrics == [expected]
    of_arrays = evaluate_vectors(
        x[queries], text[queries], gallery=x[~queries], gallery_labels=text[~queries]
    )
    assert of_arrays == expected
    assert evaluate_vectors(x, LABELS, is_query=queries, is_gallery=~queries) == expected
    two = evaluate_files(paths * 2, galleries=galleries * 2)
    assert two.metrics == [expected] * 2
    assert two.differences["map_at_r"].comparison.difference == 0
    with pytest.raises(UserError, match="1 files of vectors, but 2 galleries"):
        evaluate_files(paths, galleries=galleries * 2)
    sides = [Vectors(x, LABELS, row_id=np.arange(len(x)) - first, where="x") for first in (0, 1)]
    assert len(sides_of(sides[0], gallery=sides[0]).gallery.row_id) == len(x)
    for query, gallery in (sides, sides[::-1]):
        with pytest.raises(UserError, match="x or its gallery has a negative row id"):
            sides_of(query, gallery=gallery)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gallery_labels": None}, "A gallery needs gallery_labels"),
        ({"is_gallery": [True] * 62}, "excludes is_gallery"),
        ({"gallery": np.eye(3)[[0, 1]]}, "the embeddings has 16 dimensions, the gallery 3"),
        ({"gallery_labels": ["a", "b"]}, "must be integers or text, of all files the same; row 0 has 0"),
        ({"gallery_labels": [1]}, r"the gallery: 2 vectors, but label of shape \(1,\)"),
        ({"is_query": [True]}, r"62 vectors, but is_query of shape \(1,\)"),
    ],
)
def test_refuses_sides_that_do_not_fit(changes: dict[str, Any], message: str) -> None:
    x = vectors(0.4)
    given = {"gallery": x[:2], "gallery_labels": LABELS[:2], **changes}
    with pytest.raises(UserError, match=message):
        evaluate_vectors(x, LABELS, **given)


def test_a_call_from_python_shows_progress_on_request(capfd: pytest.CaptureFixture[str]) -> None:
    evaluate_vectors(vectors(0.4), LABELS)
    assert capfd.readouterr().err == ""
    evaluate_vectors(vectors(0.4), LABELS, progress=True)
    assert "evaluate: selected" in capfd.readouterr().err


def test_normalises_on_request_and_declares_it() -> None:
    x = vectors(0.4)
    metrics, scaled = evaluate_vectors(x, LABELS), evaluate_vectors(x * 7, LABELS, normalize=True)
    assert scaled.pop("protocol") != metrics.pop("protocol")
    assert scaled == metrics
    with pytest.raises(
        UserError, match=r"62 of 62 vectors do not have the length 1; row 0 has 7(.|\n)*--norm"
    ):
        evaluate_vectors(x * 7, LABELS)


def test_lone_queries_are_counted_and_excluded() -> None:
    x = vectors(0.4)
    metrics = evaluate_vectors(x, LABELS)
    assert (metrics["queries"], metrics["lone_queries"], metrics["classes"]) == (62, 2, 14)
    with pytest.raises(UserError, match="None of the 2 queries has another image of its class"):
        evaluate_vectors(x[-2:], LABELS[-2:])


def test_two_files_are_compared_query_by_query(tmp_path: Path) -> None:
    for name, noise in (("first", 0.6), ("second", 0.4)):
        pq.write_table(table(vectors(noise)), tmp_path / f"{name}.parquet")
    first, second = tmp_path / "first.parquet", tmp_path / "second.parquet"
    result = evaluate_files([first, second])
    assert {"recall_at_1", "map_at_r"} <= result.differences.keys()
    for name, (comparison, adjusted) in result.differences.items():
        before, after = (float(metrics[name]) for metrics in result.metrics)
        assert comparison.difference == pytest.approx(after - before, abs=1e-9)
        assert comparison.low is not None
        assert comparison.high is not None
        assert comparison.low <= comparison.difference <= comparison.high
        assert 0 < comparison.p_value <= adjusted <= 1
        assert (comparison.queries, comparison.classes) == (60, 12)
    assert (result.differences["map_at_r"].comparison.low or 0) > 0
    assert result.differences["map_at_r"].adjusted < 0.05
    for comparison, _ in evaluate_files([first, first]).differences.values():
        assert comparison.difference == comparison.low == comparison.high == 0
        assert comparison.p_value == 1


def test_refuses_files_of_other_rows(tmp_path: Path) -> None:
    pq.write_table(table(vectors(0.4)), tmp_path / "first.parquet")
    pq.write_table(table(vectors(0.4), LABELS[::-1]), tmp_path / "second.parquet")
    with pytest.raises(UserError, match=r"second.parquet does not contain the same rows as .*first.parquet"):
        evaluate_files([tmp_path / "first.parquet", tmp_path / "second.parquet"])


def changed(row: int, value: float) -> np.ndarray:
    x = vectors(0.4).copy()
    x[row, 3] = value
    return x


def rows_of(path: Path, labels: Path | None = None) -> Sides:
    return sides_of(read_vectors(path, labels))


RAGGED = [*vectors(0.4)[:-1], vectors(0.4)[-1, :9]]
NO_LABEL = [None, *LABELS[1:].tolist()]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (table(changed(5, np.nan)), "1 of 62 vectors contain NaN or infinity, the first in row 5"),
        (table(changed(5, np.inf)), "contain NaN or infinity"),
        (table(changed(5, 3.0)), "1 of 62 vectors do not have the length 1; row 5 has"),
        (table(np.zeros((62, 4))), "62 of 62 vectors do not have the length 1; row 0 has 0"),
        (pa.table({"label": LABELS, "embedding": RAGGED}), "row 0 has 16 dimensions, that of row 61 9"),
        (table(vectors(0.4), NO_LABEL), "column label has no value in row 0"),
        (
            table(vectors(0.4), LABELS.astype(float)),
            "column label contains double, expected integers or text",
        ),
        (table(vectors(0.4), row_id=LABELS), "row id 0 occurs twice"),
        (table(vectors(0.4), is_query=LABELS), "column is_query contains int64, expected bool"),
        (pa.table({"label": LABELS}), "has no column embedding; its columns are label"),
        (pa.table({"vector": LABELS}), "has no column embedding and no column label"),
        (pa.table({"label": LABELS, "embedding": LABELS}), "column embedding contains int64, expected lists"),
        (table(vectors(0.4)[:0], LABELS[:0]), "there is no vector|expected lists of numbers"),
        (pa.table({"label": LABELS, "embedding": [[]] * 62}), "there is no vector|expected lists of numbers"),
        (pa.table({"label": LABELS, "embedding": [None, *vectors(0.4)[1:]]}), "no value in row 0"),
        (pa.table({"label": LABELS, "embedding": [[1.0, None]] * 62}), "62 values of vectors are missing"),
    ],
)
def test_refuses_a_table_that_cannot_be_evaluated(tmp_path: Path, content: pa.Table, message: str) -> None:
    pq.write_table(content, tmp_path / "x.parquet")
    with pytest.raises(UserError, match=message) as raised:
        rows_of(tmp_path / "x.parquet")
    assert str(tmp_path / "x.parquet") in raised.value.what


def test_refuses_an_arrow_file_without_rows(tmp_path: Path) -> None:
    schema = pa.schema({"label": pa.int64(), "embedding": pa.list_(pa.float32())})
    with pa.OSFile(str(tmp_path / "x.arrow"), "wb") as sink, pa.ipc.new_file(sink, schema):
        pass
    with pytest.raises(UserError, match="there is no vector"):
        rows_of(tmp_path / "x.arrow")


def test_refuses_a_zero_vector_that_should_be_normalised() -> None:
    with pytest.raises(UserError, match="the vector of row 0 is zero"):
        evaluate_vectors(np.zeros((62, 4)), LABELS, normalize=True)


@pytest.mark.parametrize("power", [-200, 200])
def test_normalises_vectors_whose_squares_over_or_underflow(power: int) -> None:
    x = np.random.default_rng(0).standard_normal((62, 16))
    extreme = x.copy()
    extreme[:40] *= 2.0 ** (5 * power)  # to about 1e-301 and 1e301
    assert evaluate_vectors(extreme, LABELS, normalize=True) == evaluate_vectors(x, LABELS, normalize=True)


@pytest.mark.parametrize("normalize", [False, True])
def test_extended_precision_is_cast_to_float64(normalize: bool) -> None:
    x = vectors(0.4)
    metrics = evaluate_vectors(x.astype(np.longdouble), LABELS, normalize=normalize)
    assert metrics == evaluate_vectors(x, LABELS, normalize=normalize)
    beyond = x.astype(np.longdouble)
    beyond[3] *= np.longdouble(2) ** 5000
    with pytest.raises(UserError, match="NaN or infinity, the first in row 3"):
        evaluate_vectors(beyond, LABELS, normalize=normalize)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("kind", ["complex64", "m8[s]", "bool", "object"])
def test_refuses_values_that_are_not_real_numbers(kind: str, normalize: bool) -> None:
    x = np.eye(16)[LABELS % 16].astype(kind)
    with pytest.raises(UserError, match="expected \\(rows, dimensions\\) of real numbers"):
        evaluate_vectors(x, LABELS, normalize=normalize)


@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
@pytest.mark.parametrize("name", ["label", "embedding", "row_id"])
def test_refuses_a_column_that_occurs_twice(tmp_path: Path, suffix: str, name: str) -> None:
    content = table(vectors(0.4), row_id=np.arange(62))
    content = content.append_column(name, content[name])
    path = tmp_path / f"x.{suffix}"
    if suffix == "parquet":
        pq.write_table(content, path)
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, content.schema) as writer:
            writer.write_table(content)
    with pytest.raises(UserError, match=f"x.{suffix} has 2 columns {name}|x.{suffix} cannot be read"):
        rows_of(path)


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("recall_at", [(), (0,), (1, 10**30)]),
        ("confidence", [0.0, 1.0, 2.0, float("nan"), 0.9999999999999999]),
        ("seed", [-1]),
    ],
)
def test_refuses_settings_out_of_range_before_the_work(setting: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(UserError, match=f"{setting} is .*, expected "):
            evaluate_vectors(np.zeros(0), [], **{setting: value})


def test_labels_are_compared_in_one_form(capsys: pytest.CaptureFixture[str]) -> None:
    x = np.eye(4, dtype=np.float32)
    forms = ["caf\u00e9", " cafe\u0301", "tea\u00a0", "Tea"]
    sides = sides_of(Vectors(x, np.array(forms)))
    assert len(set(sides.queries.label.tolist())) == 3
    assert "'Tea' and 'tea'" in capsys.readouterr().err


def test_refuses_files_without_labels_and_of_other_formats(tmp_path: Path) -> None:
    x = vectors(0.4)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "flat.npy", x[0])
    (tmp_path / "labels.txt").write_text("a\nb\n")
    (tmp_path / "gap.txt").write_text("a\n\n" * 31)
    (tmp_path / "x.csv").write_text("1,2")
    (tmp_path / "x.parquet").write_text("1,2")
    pq.write_table(table(x), tmp_path / "good.parquet")
    for name, labels, message in [
        ("x.npy", None, r"x.npy contains no labels(.|\n)*--labels"),
        ("x.npy", "labels.txt", r"62 vectors, but label of shape \(2,\)"),
        ("x.npy", "gap.txt", r"gap\.txt:2: no label"),
        ("x.npy", "nowhere.txt", "nowhere.txt cannot be read"),
        ("flat.npy", "labels.txt", r"the shape is \(16,\) of float32"),
        ("x.csv", None, r"the format \.csv is not read"),
        ("x.parquet", None, "x.parquet cannot be read"),
        ("nowhere.arrow", None, "nowhere.arrow does not exist"),
        ("good.parquet", "labels.txt", "Leave out --labels"),
    ]:
        with pytest.raises(UserError, match=message):
            rows_of(tmp_path / name, None if labels is None else tmp_path / labels)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".arrow", ".parquet", ".npy"])
def test_each_byte_of_a_file_may_be_wrong(tmp_path: Path, suffix: str) -> None:
    rows = np.eye(4, dtype=np.float32)
    small = pa.table({"label": ["a", "a", "b", "b"], "embedding": list(rows), "row_id": [3, 1, 2, 0]})
    path = tmp_path / f"x{suffix}"
    labels = None
    if suffix == ".parquet":
        pq.write_table(small, path)
    elif suffix == ".arrow":
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, small.schema) as writer:
            writer.write_table(small)
    else:
        np.save(path, rows)
        labels = tmp_path / "labels.txt"
        labels.write_text("a\na\nb\nb\n")
    whole = path.read_bytes()
    refused = 0
    for position in range(len(whole)):
        path.unlink()  # it may be mapped
        # in Arrow: of a number of bits, more than 64, which is not implemented; in .npy: no UTF-8
        path.write_bytes(whole[:position] + b"\x80" + whole[position + 1 :])
        try:
            rows_of(path, labels)
        except UserError:
            refused += 1
    assert refused > 50
    if suffix == ".npy":
        path.unlink()
        path.write_bytes(whole.replace(b"(4, 4)", b"((4, 4"))  # no end of the header as Python
        with pytest.raises(UserError, match="cannot be read"):
            rows_of(path, labels)
