"""Executes the commands of the README in order in a small copy of the project, and checks the result of each.

Every `bash` line of the README is either executed or listed in NOT_HERE with the reason. Each section starts
from the last commit."""

import csv
import json
import re
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from PIL import Image

from tests.graph.conftest import ROOT, Project
from tests.graph.dvc_output import chain, first_run, stages_run

pytestmark = [pytest.mark.graph, pytest.mark.timeout(900)]

_HOURS = "hours on a GPU; tests/methods/test_library.py resolves the recipes"
NOT_HERE = {
    "make test": "this is it",
    "unseen ladder ~/photos ladder": (
        "minutes; tests/experiments/ladder/test_ladder.py runs it with a small network"
    ),
    "unseen index ~/photos data/products --model ladder/model --labels folders": (
        "needs the ladder; tests/experiments/ladder/test_ladder.py runs it"
    ),
    "unseen find data/products ~/new.jpg --at-most-false 20%": (
        "needs the ladder; tests/cli/test_search.py runs it"
    ),
    "cd ~/birds && unseen run": "minutes; tests/graph/test_unseen_init.py runs a small one",
    "make cluster": "installs packages; tests/repository/test_locks.py checks their pins",
    "unseen data cub": (
        "1.1 GB from a public server; tests/data/ingest/files/test_download.py downloads from a local one"
    ),
    "dvc exp run -S 'run.datasets=[cub]'": _HOURS,
    "unseen study crt-table-7 --datasets cub --seeds 0 1 2": _HOURS,
    "source .venv/bin/activate": "the tests run in this environment",
    "RAY_ADDRESS=head:6379 unseen run": "needs a cluster; tests/cluster/test_connection.py connects to one",
    "ray job submit -- bash -c 'cd /shared/unseen && unseen run -j 8'": (
        "needs a cluster with a dashboard; tests/deploy/test_job_submission.py submits to one"
    ),
}


def sections() -> dict[str, list[str]]:
    """Heading -> the commands of its bash blocks, without comments."""
    commands_of: dict[str, list[str]] = {}
    heading, inside = "", False
    text = re.sub(r" \\\n *", " ", (ROOT / "README.md").read_text(encoding="utf-8"))  # join continued lines
    for line in text.splitlines():
        if line.startswith("## "):
            heading = line[3:]
        elif line.startswith("```"):
            inside = line == "```bash"
        elif inside and line.strip():
            commands_of.setdefault(heading, []).append(re.sub(r"\s{2,}#.*$", "", line))
    return commands_of


MOST_NUMBERS = 12  # of a method: docs/metrics.md
BUILD_CATALOG = "unseen index ~/photos data/catalog --model data/models/folder/ms/0"
EVALUATE = "unseen evaluate data/embeddings/parts/ms/0/test.arrow"
RESTORE = "git checkout HEAD -- params.yaml dvc.lock data/metrics data/history data/plots && dvc checkout"
VARIANT = (
    "dvc exp run -S '++methods.gsp_soft={like: gsp, pooling: {epsilon: 1.0}}' "
    "-S 'run.methods=[gsp, gsp_soft]'"
)
LAPTOP = (
    "dvc exp run -S 'run.datasets=[folder]' -S 'run.methods=[ms]' "
    "-S '++datasets.folder.recipe.backbone.name=resnet18.tv_in1k' "
    "-S '++datasets.folder.recipe.batch={classes: 6, images_per_class: 4}' "
    "-S '++datasets.folder.recipe.input={size: 128, resize: 144}' "
    "-S '++datasets.folder.recipe.training={iterations: 300, validate_every: 50}'"
)


def metrics_of(project: Project, data_set: str, method: str) -> dict[str, float]:
    return json.loads((project.path / f"data/metrics/{data_set}/{method}/0.json").read_text(encoding="utf-8"))


def everything_is_built(project: Project, output: str) -> None:
    assert stages_run(output) == first_run("parts", "ms", "gsp")
    for method in ("ms", "gsp"):
        metrics = metrics_of(project, "parts", method)
        for name in ("recall_at_1", "map_at_r", "features_map_at_r"):
            assert 0 <= metrics[name] <= 1, name
        assert "recall_at_1_low" not in metrics, "six classes have no interval"
        with (project.path / f"data/history/parts/{method}/0.csv").open(encoding="utf-8") as file:
            assert [int(row["iteration"]) for row in csv.DictReader(file)] == [4, 8]
    trials = list(csv.DictReader((project.path / "data/sweep/parts/gsp/trials.csv").open(encoding="utf-8")))
    assert len(trials) == 2
    assert "dvc exp run -S" in output, "the sweep prints the command that adopts its best values"
    assert "transport_ratio" in (project.path / "data/report/index.html").read_text(encoding="utf-8")
    assert [
        p for p in (project.path / "data/state").rglob("*") if p.is_file() and "sweep" not in p.parts
    ] == [], "the state is deleted on success"
    project.commit("first run")
    assert project.run("git status --porcelain") == "", "every built file is either in git or ignored"


def nothing_is_missing(project: Project, output: str) -> None:
    assert "MISSING" not in output
    assert "built in" in output


def nothing_is_built(project: Project, output: str) -> None:
    assert stages_run(output) == set()
    start = time.monotonic()
    assert "up to date" in project.run("dvc repro")
    assert time.monotonic() - start < 15, "5 s on a quiet machine"


def no_stage_starts(project: Project, output: str) -> None:
    assert f"unchanged: {len(first_run('parts', 'ms', 'gsp'))} (" in output
    assert "started" not in output
    assert "report: data/report/index.html" in output


def all_is_up_to_date(project: Project, output: str) -> None:
    assert "up to date" in output


def the_photos_are_there(project: Project, output: str) -> None:
    assert (project.path / "data/raw/folder/sparrow/f/0.jpg").is_file()


def photos_become_a_report(project: Project, output: str) -> None:
    assert stages_run(output) == first_run("folder", "ms")
    manifest = json.loads((project.path / "data/shards/folder/manifest.json").read_text(encoding="utf-8"))
    assert {name: split["classes"] for name, split in manifest["counts"].items()} == {"train": 12, "test": 12}
    assert metrics_of(project, "folder", "ms")["queries"] == 48


def the_photos_are_in_a_catalog(project: Project, output: str) -> None:
    assert "data/catalog: 96 pictures" in output


def a_new_photo_is_answered(project: Project, output: str) -> None:
    assert output.splitlines()[1].split()[0] == "1"
    assert len(output.splitlines()) == 11
    assert (project.path / "data/found.html").read_text(encoding="utf-8").count("<img") == 11
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (project.path / "typed.py").write_text(code + "print(vectors.shape)\n", encoding="utf-8")
    printed = project.run("cp ~/new.jpg . && python -m typed && rm new.jpg typed.py").splitlines()
    assert printed[:5] == [f"{float(line.split()[0])} {line.split()[1]}" for line in printed[:5]]
    assert re.fullmatch(r"\(1, \d+\)", printed[5])


def the_products_are_labels(project: Project, output: str) -> None:
    assert "data/catalog: 96 pictures, 96 with one of 24 labels" in output


def most_answers_would_be_wrong(project: Project, output: str) -> None:
    assert "Most answers would be wrong: at this threshold, " in output
    assert "unseen ladder" in output


def a_laptop_trains_a_small_network(project: Project, output: str) -> None:
    assert stages_run(output) == {"resolve", *chain("folder", "ms"), "report"}
    recipe = json.loads((project.path / "data/models/folder/ms/0/recipe.json").read_text(encoding="utf-8"))[
        "recipe"
    ]
    assert (recipe["backbone"]["name"], recipe["batch"]["classes"], recipe["input"]["size"]) == (
        "resnet18.tv_in1k",
        6,
        64,
    )


def an_embedding_file_has_the_metrics_of_the_graph(project: Project, output: str) -> None:
    map_at_r = f"{100 * metrics_of(project, 'parts', 'ms')['map_at_r']:.1f}"
    assert re.search(rf"^MAP@R +{re.escape(map_at_r)} ", output, re.MULTILINE)


def two_embedding_files_are_compared(project: Project, output: str) -> None:
    content, _ = json.JSONDecoder().raw_decode(output)  # the progress follows
    for file, method in zip(content["files"], ("ms", "gsp"), strict=True):
        assert file["map_at_r"] == metrics_of(project, "parts", method)["map_at_r"]
    assert 0 < content["differences"]["map_at_r"]["p_value"] <= 1


def curves_are_drawn(project: Project, output: str) -> None:
    page = (project.path / "dvc_plots/index.html").read_text(encoding="utf-8")
    assert "map_at_r" in page
    assert "iteration" in page


def gsp_alone_is_built_again(project: Project, output: str) -> None:
    """The sweep of the same field does not run again."""
    assert stages_run(output) == {"resolve", *chain("parts", "gsp"), "report"}


def the_origin_of_a_value_is_shown(project: Project, output: str) -> None:
    file = r"pipeline/recipes/methods/_gsp\.yaml"
    assert re.search(rf"^  transport_ratio: +0\.3 +{file}:\d+$", output, re.MULTILINE)
    assert re.search(
        r"^  prototypes: +8 +params\.yaml:\d+, datasets\.parts\.methods\.gsp$", output, re.MULTILINE
    )


def the_changed_value_is_shown(project: Project, output: str) -> None:
    assert output == "pooling.transport_ratio: 0.3 -> 0.5\n"


def the_difference_has_a_verdict(project: Project, output: str) -> None:
    assert "equal for each query: ms on parts" in output
    (line,) = (line for line in output.splitlines() if "MAP@R" in line)
    assert line.split()[:3] == ["parts", "gsp", "MAP@R"]
    assert line.endswith("too few classes to decide"), "six classes"


def a_variant_is_built_and_reported(project: Project, output: str) -> None:
    assert stages_run(output) == {"resolve", *chain("parts", "gsp_soft"), "report"}
    recipe = json.loads(
        (project.path / "data/models/parts/gsp_soft/0/recipe.json").read_text(encoding="utf-8")
    )["recipe"]
    assert (recipe["pooling"]["epsilon"], recipe["pooling"]["prototypes"]) == (1.0, 8)
    assert "gsp_soft" in (project.path / "data/report/index.html").read_text(encoding="utf-8")


def all_is_as_committed(project: Project, output: str) -> None:
    assert project.run("git status --porcelain") == ""
    assert "up to date" in project.run("dvc status")


def the_changed_metrics_are_named(project: Project, output: str) -> None:
    assert "data/metrics/parts/gsp/0.json" in output
    assert "data/metrics/parts/ms/0.json" not in output
    assert "map_at_r" in output
    numbers = {method: numbers_of(project, method) for method in ("ms", "gsp")}
    assert 2 < len(output.splitlines()) <= 1 + numbers["gsp"]
    assert max(numbers.values()) <= MOST_NUMBERS


def numbers_of(project: Project, method: str) -> int:
    """How many numbers of all metrics files of a method can change with its model. Each is a line of
    `dvc metrics diff`; counts of images and classes are integers."""
    files = (project.path / f"data/metrics/parts/{method}").glob("*.json")
    contents = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    assert len(contents) == 2
    return sum(isinstance(value, float) for content in contents for value in content.values())


def two_workers_trained(project: Project, output: str) -> None:
    assert "train@parts-ms-1" in stages_run(output)
    log = json.loads((project.path / "data/logs/parts/ms/1.json").read_text(encoding="utf-8"))
    assert log["workers"] == 2


Check = Callable[[Project, str], None]


def a_directory_becomes_a_project(project: Project, output: str) -> None:
    assert "unseen run" in output
    assert (project.home / "birds/unseen.lock").is_file()


def the_studies_have_states(project: Project, output: str) -> None:
    lines = [line for line in output.splitlines() if line.startswith("crt-table-8 ")]
    assert [line.split()[4] for line in lines] == ["complete"]


CHECKS: dict[str, Check] = {
    "make repro": everything_is_built,
    "unseen init ~/birds": a_directory_becomes_a_project,
    "unseen doctor": nothing_is_missing,
    "dvc repro": nothing_is_built,
    "unseen run -j 4": no_stage_starts,
    "unseen study --list": the_studies_have_states,
    "dvc status": all_is_up_to_date,
    "cp -r ~/photos/. data/raw/folder/": the_photos_are_there,
    "dvc exp run -S 'run.datasets=[folder]'": photos_become_a_report,
    LAPTOP: a_laptop_trains_a_small_network,
    BUILD_CATALOG: the_photos_are_in_a_catalog,
    "unseen find data/catalog ~/new.jpg --page data/found.html": a_new_photo_is_answered,
    "unseen index ~/photos data/catalog --labels folders": the_products_are_labels,
    "unseen find data/catalog ~/new.jpg --at-most-false 5% --json": most_answers_would_be_wrong,
    EVALUATE: an_embedding_file_has_the_metrics_of_the_graph,
    f"{EVALUATE} data/embeddings/parts/gsp/0/test.arrow --json": two_embedding_files_are_compared,
    "unseen recipe parts gsp": the_origin_of_a_value_is_shown,
    "dvc exp run -S '++methods.gsp.pooling.transport_ratio=0.5'": gsp_alone_is_built_again,
    "unseen recipe parts gsp --diff HEAD": the_changed_value_is_shown,
    "dvc metrics diff": the_changed_metrics_are_named,
    "unseen diff HEAD": the_difference_has_a_verdict,
    "dvc plots diff --out dvc_plots": curves_are_drawn,
    RESTORE: all_is_as_committed,
    VARIANT: a_variant_is_built_and_reported,
    "dvc exp run -S 'train.workers=2' -S 'run.methods=[ms]' -S 'run.seeds=[1]'": two_workers_trained,
}
SMALLER = {
    "--at-most-false 5%": "--at-most-false 80%",  # for 12 products that the model was not trained on
    "{iterations: 300, validate_every: 50}": "{iterations: 4, validate_every: 2}",
    "{size: 128, resize: 144}": "{size: 64, resize: 72}",
}
# The network of a few steps does not distinguish these products; tests/cli/test_search.py has one that does.
REFUSED_HERE = {"unseen find data/catalog ~/new.jpg --at-most-false 5% --json"}
TYPED = [command for commands in sections().values() for command in commands]


def test_every_command_is_executed_or_listed_with_a_reason() -> None:
    assert set(TYPED) == CHECKS.keys() | NOT_HERE.keys()


BIRDS = ["sparrow", "robin", "wren", "tit", "crow", "owl", "duck", "swan", "gull", "heron", "kite", "jay"]


def photos(home: Path) -> None:
    """24 classes of a user's pictures, four of each; colour and size depend on the class."""
    for index, (name, sex) in enumerate(product(BIRDS, "fm")):
        for image in range(4):
            path = home / "photos" / name / sex / f"{image}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new(
                "RGB", (48 + 2 * index, 40 + 3 * image), (10 * index, 255 - 10 * index, 60 * image)
            ).save(path, quality=95)
    Image.new("RGB", (50, 40), (30, 200, 90)).save(home / "new.jpg", quality=95)


@pytest.mark.parametrize("heading", list(sections()))
def test_a_section(project: Project, heading: str) -> None:
    photos(project.home)
    if (project.path / "dvc.lock").exists():
        project.restore()
    if heading == "Your own photos":  # test_reruns.py trains gsp on photos
        project.run("sed -i '/^  methods:/,/^  seeds:/{/- gsp/d}' params.yaml")
    for command in sections()[heading]:
        if command not in NOT_HERE:
            # the environment exists
            typed = command.replace("make repro", "make -o .venv/.runtime-cpu -o .venv/.runtime-gpu repro")
            for size in SMALLER.items():
                typed = typed.replace(*size)
            run = project.refused if command in REFUSED_HERE else project.run
            CHECKS[command](project, run(typed))
