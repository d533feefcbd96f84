"""The blocks of params.yaml: stages, sources of data sets, sweeps."""

from pathlib import Path

import pytest

from tests.params import project, resolve, write
from unseen.config.definitions import Definitions
from unseen.config.document import Params
from unseen.config.resolve import concurrent_trials, dataset_settings, settings, sweep_settings
from unseen.config.stages import RunSettings, SweepSettings, TrainSettings
from unseen.data.ingest.settings import SOURCES, IngestSettings
from unseen.experiments.catalogue import definitions
from unseen.experiments.plan.files import plan
from unseen.runtime.errors import UserError
from unseen.runtime.settings import Strict

TEXT = """\
run: {datasets: [tiny], methods: [mine], seeds: [0]}
ingest: {resize: 64}
train: {workers: 2}
methods: {mine: {method: gsp}}
datasets:
  tiny:
    source: {kind: folder, path: photos}
"""
FOLDR = "unknown datasets.tiny.source.kind 'foldr'"
UNKNOWN_KIND = ["params.yaml:7", FOLDR, "Did you mean folder?", "cub, cars, sop"]


def known(tmp_path: Path, text: str = TEXT) -> Definitions:
    path = tmp_path / "params.yaml"
    path.write_text(text, encoding="utf-8")
    return Definitions(Params(path))


def test_blocks_of_stages(tmp_path: Path) -> None:
    source, ingest = dataset_settings(known(tmp_path), "tiny")
    assert (source.kind, source.path, source.test_share) == ("folder", "photos", 0.5)
    assert ingest == IngestSettings(resize=64)
    assert settings(known(tmp_path).params, "train", TrainSettings).workers == 2
    assert settings(known(tmp_path).params, "run", RunSettings).seeds == (0,)
    dated = known(tmp_path, TEXT.replace("photos", "2026-01-31"))
    assert dataset_settings(dated, "tiny")[0].path == "2026-01-31"
    with pytest.raises(
        UserError, match=r"params\.yaml:3: train\.worker is not a setting[^\n]*\n.*Did you mean workers"
    ):
        settings(known(tmp_path, TEXT.replace("workers: 2", "worker: 2")).params, "train", TrainSettings)
    with pytest.raises(
        UserError,
        match=r"params\.yaml:7: datasets\.tiny\.source\.pth is not a setting[^\n]*\n.*Did you mean path",
    ):
        dataset_settings(known(tmp_path, TEXT.replace("path: photos", "path: photos, pth: photos")), "tiny")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("{kind: folder, path: photos}", "photos", ["params.yaml:7", "datasets.tiny.source", "'photos'"]),
        ("kind: folder", "kind: foldr", UNKNOWN_KIND),
        ("kind: folder, ", "", ["params.yaml:6", "datasets.tiny.source.kind is missing"]),
    ],
)
def test_refuses_an_invalid_source(tmp_path: Path, old: str, new: str, expected: list[str]) -> None:
    assert old in TEXT
    with pytest.raises(UserError) as caught:
        dataset_settings(known(tmp_path, TEXT.replace(old, new, 1)), "tiny")
    for part in expected:
        assert part in str(caught.value)


@pytest.mark.parametrize("kind", SOURCES.values(), ids=lambda kind: kind.__name__)
def test_an_error_lists_the_fields_of_the_source(tmp_path: Path, kind: type[Strict]) -> None:
    """Every source of the union is checked; an unregistered source would list no field."""
    name, known_field = (
        kind.model_fields["kind"].default,
        next(field for field in kind.model_fields if field != "kind"),
    )
    needed = "path: photos, " if name == "folder" else ""
    text = TEXT.replace("{kind: folder, path: photos}", f"{{kind: {name}, {needed}{known_field}s: 1}}")
    with pytest.raises(
        UserError,
        match=(
            rf"params\.yaml:7: datasets\.tiny\.source\.{known_field}s is not a setting[^\n]*\n"
            rf".*Did you mean {known_field}\?"
        ),
    ):
        dataset_settings(known(tmp_path, text), "tiny")


def test_a_folder_set_without_path_uses_the_folder_of_its_name(tmp_path: Path) -> None:
    text = (
        "ingest: {}\ndatasets: {my-birds: {source: {kind: folder}}, other: {source: {kind: cub, path: "
        "archives}}}"
    )
    source, _ = dataset_settings(known(tmp_path, text), "my-birds")
    assert source == dataset_settings(known(tmp_path, text), "folder")[0].model_copy(
        update={"path": "data/raw/my-birds"}
    )
    assert dataset_settings(known(tmp_path, text), "other")[0].model_dump() == {
        "kind": "cub",
        "path": "archives",
    }
    others, cub = (resolve(known(tmp_path, text), dataset, "irt_l") for dataset in ("other", "cub"))
    assert others == cub, "a data set has the recipes of the kind of its source"


@pytest.mark.parametrize(
    "domain",
    [
        {"grid": []},
        {"uniform": [2, 1]},
        {"grid": [1], "choice": [2]},
        {"normal": [0, 1]},
        {"loguniform": [1, 2, 3]},
    ],
)
def test_refuses_a_sweep_without_valid_values(domain: dict[str, list[float]], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"pooling\.epsilon"):
        SweepSettings.parse({"space": {"pooling.epsilon": domain}, "iterations": 10})


def test_a_key_of_a_sweep_replaces_the_published_one(tmp_path: Path) -> None:
    published = sweep_settings(known(tmp_path, "methods: {}"), "gsp")
    assert set(published.space) == {"pooling.prototypes", "pooling.transport_ratio", "pooling.epsilon"}
    text = (
        "sweep: {gsp: {space: {dim: {grid: [64]}}}, gsp-soft: {grace: 3, concurrent: 5}}\n"
        "methods: {gsp-soft: {like: gsp}}"
    )
    assert concurrent_trials(known(tmp_path, text), "gsp-soft") == 5
    settings = sweep_settings(known(tmp_path, text), "gsp-soft")
    assert (set(settings.space), settings.grace, settings.trials) == ({"dim"}, 3, published.trials)
    with pytest.raises(UserError, match=r"sweep\.mine is missing, and mine has no published search space"):
        sweep_settings(known(tmp_path), "mine")


@pytest.mark.slow
@pytest.mark.parametrize("text", ["run: \0", "run: \x7f", "[" * 1000, "?\n  a: {}\n: 2"])
def test_refuses_text_that_yaml_cannot_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"params\.yaml.* is not valid YAML: ."):
        Params(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: \xff", r"params\.yaml is not UTF-8 text: invalid start byte"),
        (b"a: 1\nb: c: 2", r"params\.yaml:2 is not valid YAML: .*\n  Correct that line"),
        (b"- a", r"params\.yaml must contain `key: value` lines at its top level"),
        (b"sweep: {gsp: 3}", r"params\.yaml:1: sweep\.gsp must be a block of settings, got 3"),
    ],
)
def test_a_file_of_another_form_is_an_error(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "params.yaml").write_bytes(content)
    with pytest.raises(UserError, match=message):
        sweep_settings(Definitions(Params(tmp_path / "params.yaml")), "gsp")


def test_a_search_of_a_study_needs_a_space(tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies/mine.yaml").write_text(
        "mine:\n  title: t\n  methods: {a: {like: irt_o}}\n  datasets: [parts]\n  search: {total: 2}\n",
        encoding="utf-8",
    )
    with pytest.raises(UserError, match=r"mine\.yaml:5: mine\.search: irt_o of mine-a has no published"):
        sweep_settings(definitions(write(tmp_path, {}), "mine-a"), "mine-a")


def test_a_data_set_of_a_study_has_its_source_settings(tmp_path: Path) -> None:
    name, row = "cifar10-split-images", "gsp-figure-5-with"
    params = project(
        tmp_path,
        {
            "run.datasets": [name, "cifar10"],
            "run.methods": [row, "ms"],
            "run.sweeps": [],
            "datasets.cifar10": {"source": {"path": "elsewhere"}, "recipe": {"dim": 32}},
        },
    )
    run = plan(params)
    source, ordinary = run.ingest[name][0], run.ingest["cifar10"][0]
    assert source.model_dump() == {"kind": "cifar10", "path": "elsewhere", "split": "images"}
    assert ordinary.model_dump() == {"kind": "cifar10", "path": "elsewhere", "split": "classes"}
    assert run.recipes[name, row].training.protocol == "published"
    assert run.recipes[name, row].pooling.prototypes == 8
    assert run.evaluation(name) == run.evaluation("cifar10")


def test_refuses_a_value_of_a_source_with_the_line_of_the_study(tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "mine.yaml").write_text(
        "mine:\n  title: t\n  methods: {a: {like: ms}}\n  datasets: [parts]\n"
        "  sources:\n    parts:\n      images_per_class: 1\n",
        encoding="utf-8",
    )
    params = write(tmp_path, {"run": {"datasets": ["parts-images-per-class-1"]}})
    with pytest.raises(UserError, match=r"mine.yaml:7: images_per_class: .* got 1"):
        dataset_settings(definitions(params), "parts-images-per-class-1")
