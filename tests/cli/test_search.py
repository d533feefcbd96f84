"""The commands `unseen index` and `unseen find`."""

import io
import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import save_file

from tests.photos import COUNT, save_model, save_photos, save_products
from unseen.cli import main as cli
from unseen.cli.commands.network import network_of
from unseen.evaluation.external import evaluate_vectors
from unseen.evaluation.index.kinds import KINDS
from unseen.evaluation.settings import Hnsw
from unseen.frozen.network import Network
from unseen.frozen.training_classes import write_training_classes
from unseen.networks import lite0
from unseen.networks.published_network import timm
from unseen.runtime.errors import UserError
from unseen_search.catalog import Catalog, build
from unseen_search.catalog.measure import measure
from unseen_search.commands import INDEX_KINDS


@pytest.mark.slow
def test_index_and_find_and_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos, catalog = save_photos(tmp_path / "photos"), tmp_path / "catalog"
    model = save_model(tmp_path / "model", 1)

    def run(*arguments: object) -> str:
        cli.main([str(argument) for argument in arguments])
        return capsys.readouterr().out

    assert run("index", photos, catalog, "--model", model) == f"{catalog}: {COUNT} pictures\n"
    query = photos / "shelf 2/schön 2.jpg"
    lines = run("find", catalog, query, "-k", 3, "--page", tmp_path / "found.html").splitlines()
    assert lines[0] == str(query)
    assert lines[1].split(None, 2) == ["1", "1.000", str(query)]
    assert len(lines) == 4
    run("index", photos, catalog, "--index", "hnsw")
    assert Catalog(catalog).index.setting == Hnsw()
    (photos / "shelf 1/deep/schön 1.jpg").unlink()
    run("find", catalog, query, "-k", COUNT, "--page", tmp_path / "found.html")
    html = (tmp_path / "found.html").read_text(encoding="utf-8")
    assert html.count("<img") == COUNT, "the query and all pictures but one"
    assert html.count("file is missing") == 1
    assert 'src="data:image/jpeg;base64,' in html
    assert "http" not in html
    assert json.loads((catalog / "catalog.json").read_text())["pictures"] == COUNT
    with pytest.raises(SystemExit) as ended:
        run("find", catalog, photos / "nothing.jpg")
    assert ended.value.code == 1
    assert "nothing.jpg cannot be read" in capsys.readouterr().err


def test_the_command_lists_every_kind_of_index() -> None:
    assert set(INDEX_KINDS) == set(KINDS)


@pytest.mark.slow
def test_find_names_products_reads_lists_and_folders_and_prints_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    photos, catalog = save_products(tmp_path / "photos"), tmp_path / "catalog"
    model = save_model(tmp_path / "model", 1)

    def run(*arguments: object) -> str:
        cli.main([str(argument) for argument in arguments])
        return capsys.readouterr().out

    printed = run("index", photos, catalog, "--model", model, "--labels", "folders")
    first, rule, *others = printed.splitlines()
    assert first == f"{catalog}: 60 pictures, 60 with one of 12 labels"
    assert rule.startswith("rule of the products: nearest; ")
    assert any("right product" in line for line in others), "the curve"
    assert (catalog / "decision.svg").is_file()
    query = photos / "product 03/2.png"
    lines = run("find", catalog, query, "-k", 5).splitlines()
    assert lines[1].split(None, 1)[1] == "product 03  5 matches"
    listed = tmp_path / "list.txt"
    listed.write_text(f"{query}\n\n{query}\n")
    folder = photos / "product 01"
    content = json.loads(run("find", catalog, folder, "--list", listed, "--json", "--at-most-false", "60%"))
    assert [entry["query"] for entry in content["queries"]] == [
        *sorted(str(path) for path in folder.iterdir()),
        str(query),
        str(query),
    ]
    threshold = Catalog(catalog).threshold(0.6)
    assert content["threshold"] == json.loads(json.dumps(threshold._asdict()))
    entry = content["queries"][-1]
    assert entry["unknown"] is False
    assert entry["products"][0]["label"] == entry["matches"][0]["label"] == "product 03"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{query}\n".encode())))
    assert run("find", catalog, "--list", "-", "-k", 1).splitlines()[0] == str(query)
    strict = threshold._replace(score=1.01)
    monkeypatch.setattr(Catalog, "threshold", lambda *_, **__: strict)
    printed = run("find", catalog, query, "--at-most-false", "0.6", "--page", tmp_path / "page.html")
    assert printed.splitlines()[:2] == [strict.sentence(), f"{query}: unknown; candidates:"]
    assert "product 03" in printed.splitlines()[2]
    content = json.loads(run("find", catalog, query, "--at-most-false", "60%", "--json"))
    assert content["queries"][0]["unknown"] is True
    assert content["queries"][0]["products"][0]["label"] == "product 03"
    assert content["queries"][0]["matches"]
    assert content["curve"][-1]["unknown"]["value"] == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert '<p class="answer">unknown</p>' in page
    assert "candidate: product 03</figcaption>" in page
    with pytest.raises(SystemExit):
        run("find", catalog, "--list", tmp_path / "nowhere.txt")
    assert "nowhere.txt cannot be read" in capsys.readouterr().err


@pytest.mark.slow
def test_find_states_that_the_rate_is_not_calibrated_for_a_model_of_these_products(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos, catalog = save_products(tmp_path / "photos", 10, 2), tmp_path / "catalog"
    model = save_model(tmp_path / "model", 1)
    write_training_classes(model, [f"product {number:02d}" for number in range(4)])
    build(photos, catalog, model, labels="folders", processes=1)
    find = ["find", str(catalog), str(photos / "product 01/1.png"), "-k", "2", "--at-most-false", "20%"]
    cli.main([*find, "--page", str(tmp_path / "page.html")])
    first, query, *matches = capsys.readouterr().out.splitlines()
    assert "not calibrated for this model: it was trained on 4 of the 10 products" in first
    assert "`unseen ladder` without --ship" in first
    assert query.endswith("1.png")
    assert matches
    assert "not calibrated for this model" in (tmp_path / "page.html").read_text(encoding="utf-8")
    cli.main([*find, "--json"])
    content = json.loads(capsys.readouterr().out)
    assert content["threshold"] is content["queries"][0]["unknown"] is None
    assert "trained on 4 of the 10 products" in content["not_calibrated"]["reason"]
    assert "held-out classes" in content["not_calibrated"]["remedy"]


@pytest.mark.slow
def test_index_takes_a_network_with_weights_and_arguments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos, catalog, weights = (
        save_photos(tmp_path / "photos"),
        tmp_path / "catalog",
        tmp_path / "w.safetensors",
    )
    save_file(timm.create_model("test_efficientnet", num_classes=0).state_dict(), weights)
    options = ["--network", "test_efficientnet", "--weights", str(weights), "--size", "32"]
    arguments = ["index", str(photos), str(catalog), *options, "--argument", "pad_type=same"]
    with pytest.raises(SystemExit):
        cli.main(arguments)
    assert "Candidates:" in capsys.readouterr().err
    cli.main([*arguments, "--statistics", "half"])
    about = json.loads((catalog / "model/network.json").read_text())
    assert about["arguments"] == {"pad_type": "same"}
    assert about["input"]["mean"] == [0.5, 0.5, 0.5]
    assert about["input"]["size"] == 32
    assert about["licence"] == "that of the file"
    for wrong, problem in (
        (["--model", str(tmp_path), "--network", "resnet18"], "either --model or --network"),
        (["--weights", str(weights)], "need --network"),
        (["--network", "resnet18", "--argument", "pad_type"], "is not KEY=VALUE"),
    ):
        with pytest.raises(SystemExit) as ended:
            cli.main(["index", str(photos), str(catalog), *wrong])
        assert ended.value.code == 2
        assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ("find", "catalog", "a.jpg", "--unknown", "photos"),
            "--unknown needs --at-most-false or --at-most-",
        ),
        (("measure", "photos"), "Name the network with --network."),
    ],
)
def test_states_the_option_that_lacks(
    arguments: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([*arguments])
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


def test_a_size_alone_is_of_the_default_network() -> None:
    assert network_of(None, None, 96, None, {}) == Network(lite0.NETWORK, size=96)


def test_measure_draws_labels_up_to_a_number_of_photos_and_needs_two(tmp_path: Path) -> None:
    photos, weights = save_products(tmp_path / "photos", 5, 2), tmp_path / "w.safetensors"
    save_file(timm.create_model("test_resnet", num_classes=0).state_dict(), weights)
    network = Network("test_resnet.r160_in1k", weights, 32)
    assert {result.metrics["queries"] for result in measure(photos, network, limit=4)} == {4}
    shutil.rmtree(photos)
    with pytest.raises(UserError, match=r"have 1 labels; a comparison needs two or more"):
        measure(save_products(photos, 1, 2), network)


@pytest.mark.slow
def test_measure_finds_the_statistics_of_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos, weights = save_products(tmp_path / "photos", 8, 3), tmp_path / "w.safetensors"
    save_file(timm.create_model("test_efficientnet", num_classes=0).state_dict(), weights)
    options = ["--network", "test_efficientnet", "--weights", str(weights), "--size", "32"]
    cli.main(["measure", str(photos), *options])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "24 photos of 8 classes, 95% intervals over classes"
    rows = lines[3:-2]
    assert len(rows) == 8, "four statistics, two paddings"
    assert len({row.split("  ")[0] for row in rows}) == 8
    precisions = [float(row.rpartition(" (")[0].split()[-1]) for row in rows]
    assert precisions == sorted(precisions, reverse=True)
    best = rows[0].split("  ")[0].split()
    assert lines[-1].split()[-len(best) :] == best
    cli.main(["index", str(photos), str(tmp_path / "catalog"), *options, *best])
    vectors = Catalog(tmp_path / "catalog").vectors()
    labels = [path.split("/")[0] for path in Catalog(tmp_path / "catalog").paths]
    assert 100 * evaluate_vectors(vectors, labels)["map_at_r"] == pytest.approx(precisions[0], abs=0.06)
    with pytest.raises(SystemExit):
        cli.main(["measure", str(photos / "product 00"), *options])
    assert "product 00 has a label" in capsys.readouterr().err
