"""Dependencies in the real graph: which stages a change reruns, variants, names with hyphens, other
revisions."""

import json
from collections.abc import Iterator

import pytest
from PIL import Image

from tests.graph.conftest import Project
from tests.graph.dvc_output import first_run, stages_run

pytestmark = [pytest.mark.graph, pytest.mark.timeout(900)]


def would_run(project: Project) -> set[str]:
    """The stages that `dvc repro` would rerun first, after stage `resolve` has read the changes."""
    project.run("dvc repro -q resolve")
    return set(json.loads(project.run("dvc status --json").splitlines()[-1]))


@pytest.fixture
def at_the_first_commit(project: Project) -> Iterator[None]:
    """The test may commit: afterwards the copy is at the commit of the start of the test."""
    first_commit = project.run("git rev-parse HEAD").strip()
    built = (project.path / "dvc.lock").exists()
    if built:
        project.restore()
    yield
    project.run(f"git reset -q --hard {first_commit} && git clean -fdq")
    if built:
        project.run("dvc checkout -q --force")


@pytest.mark.parametrize("runner", ["dvc repro --force", "unseen run --force"])
def test_a_stage_refuses_code_of_another_branch(
    project: Project, at_the_first_commit: None, runner: str
) -> None:
    """The other branch, with another line of a loss, is checked out while stage `ingest` runs."""
    script, body = project.path / "stages/ingest.py", "    settings = read_inputs("
    text = script.read_text(encoding="utf-8")
    assert body in text
    switch = "__import__('os').system('test -e switch && git checkout -q other')"
    script.write_text(text.replace(body, f"    {switch}\n{body}"), encoding="utf-8")
    project.commit("switch")
    project.run("git checkout -q -b other && echo UNUSED=1 >> pipeline/losses/multi_similarity.py")
    project.run("git commit -q -a -m other && git checkout -q - && touch switch")
    target = "train@parts-ms-0"
    output = project.refused(f"{runner} {target}")
    assert "The code changed during the run: unseen.losses.multi_similarity is not" in output
    assert not (project.path / "data/models/parts/ms/0").exists()
    project.run("rm switch && git checkout -q - && git branch -q -D other")
    project.run(f"{runner} {target}")
    assert (project.path / "data/models/parts/ms/0/weights.safetensors").is_file()
    assert "up to date" in project.run(f"dvc status {target}")


def test_runs_names_with_hyphens_and_a_variant(project: Project, at_the_first_commit: None) -> None:
    for label in range(16):
        for image in range(6):
            path = project.home / f"birds/class-{label:02d}/{image}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (48 + label, 40 + image), (15 * label, 255 - 15 * label, 40 * image)).save(
                path, quality=95
            )
    params_text = (project.path / "params.yaml").read_text(encoding="utf-8")
    output = project.run(
        f"dvc exp run -S '++datasets.my-birds.source={{kind: folder, path: {project.home}/birds}}' "
        "-S '++datasets.my-birds.recipe.backbone={name: test_resnet, pretrained: false, batch_norm: batch}' "
        "-S '++datasets.my-birds.recipe.input={size: 32, resize: 36}' "
        "-S '++datasets.my-birds.recipe.batch={classes: 4, images_per_class: 3}' "
        "-S '++datasets.my-birds.recipe.training={iterations: 4, validate_every: 2, patience: null}' "
        "-S '++datasets.my-birds.methods.gsp.pooling={prototypes: 8, initialization_memory: 24}' "
        "-S '++methods.gsp-soft={like: gsp, pooling: {epsilon: 1.0}}' "
        "-S 'run.datasets=[my-birds]' -S 'run.methods=[gsp-soft]'"
    )
    assert stages_run(output) == first_run("my-birds", "gsp-soft")
    path = project.path / "data/models/my-birds/gsp-soft/0/recipe.json"
    pooling = json.loads(path.read_text(encoding="utf-8"))["recipe"]["pooling"]
    assert pooling["epsilon"] == 1.0
    assert pooling["prototypes"] == 8, "the variant inherits the user's change of gsp"
    page = (project.path / "data/report/index.html").read_text(encoding="utf-8")
    assert "gsp-soft" in page
    assert (project.path / "data/sweep/my-birds/gsp/skipped.json").is_file(), (
        "the search of params.yaml names `parts` alone"
    )
    assert (project.path / "params.yaml").read_text(encoding="utf-8") != params_text
    project.run("git add -A && git commit -q -m birds")

    def edit(name: str, old: str, new: str) -> None:
        file = project.path / name
        text = file.read_text(encoding="utf-8")
        assert old in text, name
        file.write_text(text.replace(old, new, 1), encoding="utf-8")

    edit("pipeline/losses/multi_similarity.py", '"""', '"""Other words. ')
    edit("pipeline/config/stages.py", '"""Block `report`."""', '"""Other words."""')
    edit("params.yaml", "loader_threads:", "loader_threads: 1")
    assert would_run(project) == set(), "no edit changes a result"
    edit("pipeline/evaluation/statistics/intervals.py", "\n\n\n", "\n\n\nUNUSED = 1\n\n\n")
    changed = would_run(project)
    assert "evaluate@my-birds-gsp-soft-0" in changed
    assert "train@my-birds-gsp-soft-0" not in changed
    edit("params.yaml", "\n      epsilon: 1.0", "\n      epsilon: 2.0")
    assert "train@my-birds-gsp-soft-0" in would_run(project)
    difference = project.run("python -m unseen recipe my-birds gsp-soft --diff HEAD")
    assert difference.splitlines() == ["pooling.epsilon: 1.0 -> 2.0"]
    assert "Unknown git revision nowhere" in project.refused(
        "python -m unseen recipe my-birds gsp-soft --diff nowhere"
    )
