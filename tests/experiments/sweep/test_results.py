"""Table, figure, best values, and the command that adopts them."""

import csv
import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from dvc.utils.hydra import apply_overrides

from tests.params import resolve
from unseen.config.definitions import Definitions
from unseen.config.document import Params
from unseen.config.stages import SweepSettings
from unseen.experiments.sweep.outputs import adopting_command, best_of, table, write_results, write_times
from unseen.experiments.sweep.record import Trial, load, save
from unseen.experiments.sweep.space import draw, trial_recipes
from unseen.experiments.sweep.sweep import Recorder
from unseen.runtime.errors import UserError

RATIO = "pooling.transport_ratio"


def row(iteration: int, metric: float, seconds: float = 1.0) -> dict[str, float]:
    metrics = {"recall_at_1": metric + 0.1, "r_precision": metric, "map_at_r": metric}
    return {"iteration": float(iteration), "epoch": 0.5, "loss": 1 - metric, **metrics, "seconds": seconds}


def test_a_validation_whose_record_is_lost_is_recorded_when_the_trial_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The loop reports the validations before its checkpoint again, which can be newer than the record."""
    trial = Trial(0, {RATIO: 0.1}, [row(10, 0.2, 3.0)])
    recorder = Recorder([trial], tmp_path, 30, "map_at_r")
    for resumed in (row(10, 0.2, 0.1), row(20, 0.4, 0.1), row(30, 0.3, 2.0)):
        recorder.reported(0, resumed)
    (saved,) = load(tmp_path, [({RATIO: 0.1}, 0)])
    assert saved.rows == [row(10, 0.2, 3.0), row(20, 0.4, 0.1), row(30, 0.3, 2.0)]
    assert saved.best("map_at_r") == 0.4
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("iteration ")[1].split("/")[0] for line in lines] == ["20.0", "30.0"]


def test_a_trial_whose_process_ended_twice_has_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Recorder([Trial(0, {RATIO: 0.1})], tmp_path, 30, "map_at_r").died(0, "killed by a signal")
    assert "trial 0 failed: its process ended, twice: killed by a signal" in capsys.readouterr().err
    saved = json.loads((tmp_path / "000.json").read_text(encoding="utf-8"))
    assert (saved["finished"], saved["error"]) == (True, "its process ended, twice: killed by a signal")


@pytest.fixture
def trials() -> list[Trial]:
    complete = Trial(
        0,
        {RATIO: 0.1, "loss.name": "multi_similarity"},
        [row(10, 0.4, 2.0), row(20, 0.3, 4.0)],
        finished=True,
    )
    stopped = Trial(
        1, {RATIO: 0.3, "loss.name": "multi_similarity"}, [row(10, 0.2)], finished=True, stopped_early=True
    )
    failed = Trial(
        2,
        {RATIO: 0.6, "loss.name": "multi_similarity"},
        [],
        finished=True,
        error="The loss is not finite.\n  Lower the learning rate.",
    )
    return [complete, stopped, failed]


@pytest.mark.slow
def test_results_do_not_depend_on_the_times_of_the_trials(trials: list[Trial], tmp_path: Path) -> None:
    contents = []
    for factor in (1.0, 7.0):
        for trial in trials:
            for validation in trial.rows:
                validation["seconds"] *= factor
        output = tmp_path / f"{factor}"
        write_results(output, trials, "map_at_r", "dvc exp run")
        contents.append({path.name: path.read_bytes() for path in output.iterdir()})
    assert contents[0] == contents[1]
    assert contents[0].keys() == {"trials.csv", "best.json", "digests.json"}
    write_times(tmp_path / "times.json", trials)
    assert json.loads((tmp_path / "times.json").read_text()) == {"seconds": {"0": 28.0, "1": 7.0, "2": 0.0}}


@pytest.mark.slow
def test_the_table_has_every_trial_and_its_best_validation(trials: list[Trial], tmp_path: Path) -> None:
    write_results(tmp_path / "out", trials, "map_at_r", "dvc exp run")
    with open(tmp_path / "out/trials.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [
        (row["trial"], row[RATIO], row["iterations"], row["stopped_early"], row["best_map_at_r"])
        for row in rows
    ] == [
        ("0", "0.1", "20", "False", "0.4"),
        ("1", "0.3", "10", "True", "0.2"),
        ("2", "0.6", "0", "False", ""),
    ]
    assert rows[0]["last_map_at_r"] == "0.3"
    assert rows[2]["error"].startswith("The loss is not finite")
    best = json.loads((tmp_path / "out/best.json").read_text())
    assert best == {
        "trials": [0],
        "values": trials[0].values,
        "metric": "map_at_r",
        "value": 0.4,
        "adopt": "dvc exp run",
    }
    printed = table(trials, "map_at_r").splitlines()
    assert printed[1].startswith("*  0      0     0.1")
    assert printed[2].endswith("stopped early")
    assert printed[3].endswith("failed: The loss is not finite.")


def test_a_sweep_whose_trials_all_failed_has_no_best(trials: list[Trial], tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"None of the 1 trials of the sweep is complete: trial 2: The loss is not finite\."
    ):
        best_of(trials[2:], "map_at_r")


@pytest.mark.slow
def test_values_are_compared_by_their_mean_over_complete_seeds(tmp_path: Path) -> None:
    """The best single training belongs to other values; those with the highest mean of all have a failed
    one."""
    scores = {0.1: (0.5, 0.2), 0.3: (0.4, 0.4), 0.6: (0.9, None)}
    trials = [
        Trial(2 * place + seed, {RATIO: ratio, "loss.name": "multi_similarity"}, finished=True, seed=seed)
        for place, ratio in enumerate(scores)
        for seed in (0, 1)
    ]
    for trial in trials:
        score = scores[trial.values[RATIO]][trial.seed]
        trial.rows = [] if score is None else [row(20, score)]
        trial.error = "no memory" if score is None else None
    best = best_of(trials, "map_at_r")
    assert [trial.number for trial in best] == [2, 3]
    write_results(tmp_path / "out", trials, "map_at_r", "dvc exp run")
    content = json.loads((tmp_path / "out/best.json").read_text())
    assert (content["trials"], content["value"]) == ([2, 3], pytest.approx(0.4))
    assert [line[0] for line in table(trials, "map_at_r").splitlines()[1:]] == list("  **  ")


def test_a_shorter_training_is_not_the_best(trials: list[Trial]) -> None:
    trials[1].rows = [row(10, 0.9)]
    assert best_of(trials, "map_at_r") == [trials[0]]
    with pytest.raises(UserError, match="is complete: trial 1: stopped early"):
        best_of(trials[1:2], "map_at_r")


def test_reads_records_and_repeats_failed_trials(trials: list[Trial], tmp_path: Path) -> None:
    for trial in trials:
        save(tmp_path, trial)
    values = [(trial.values, trial.seed) for trial in trials]
    assert load(tmp_path, values) == [*trials[:2], Trial(2, values[2][0])]
    assert load(tmp_path / "nothing", values) == [
        Trial(number, drawn) for number, (drawn, _) in enumerate(values)
    ]


def test_a_resumed_trial_repeats_no_validation_and_its_seconds_add_up() -> None:
    trial = Trial(0, {}, [row(5, 0.1, 1.0), row(10, 0.2, 2.0)])
    added = [trial.add(row(5, 0.3, 0.1)), trial.add(row(10, 0.3, 0.5)), trial.add(row(15, 0.3, 1.5))]
    assert added == [False, False, True]
    assert [validation["map_at_r"] for validation in trial.rows] == [0.1, 0.2, 0.3]
    assert trial.seconds == 2.0 + 1.5


def adopted(line: str) -> Definitions:
    """params.yaml after the assignments of a command, as DVC writes it."""
    arguments = shlex.split(line)
    assert arguments[:3] == ["dvc", "exp", "run"]
    assert set(arguments[3::2]) == {"-S"}
    shutil.copy("params.yaml", "adopted.yaml")
    apply_overrides(Path("adopted.yaml"), arguments[4::2])
    return Definitions(Params(Path("adopted.yaml")))


@pytest.mark.parametrize(
    ("method", "values"),
    [
        ("gsp", {RATIO: 0.6}),
        ("gsp", {"optimizer.learning_rate": 3e-5}),
        ("crt", {"embedding.prototypes": 16, "auxiliary.prototypes": 16}),
        ("ms", {"loss.beta": 20.0, "memory": None}),
        ("gsp", {"loss.name": "contrastive"}),
        ("ms", {"input.crop_scale": [0.2, 1.0]}),
    ],
)
def test_adopting_changes_one_data_set_and_repeats_no_search(
    params: Definitions, method: str, values: dict[str, Any]
) -> None:
    line = adopting_command(params, "parts", method, values)
    adopted_params = adopted(line)
    assert resolve(adopted_params, "parts", method) == resolve(params, "parts", method, values)
    for dataset in ("cub", "cifar10"):
        assert resolve(adopted_params, dataset, method) == resolve(params, dataset, method)
    search = SweepSettings.parse(
        {"space": {field: {"grid": [value]} for field, value in values.items()}, "iterations": 40}
    )
    recipes_before, recipes_after = (
        trial_recipes(current, "parts", method, search, draw(search)) for current in (params, adopted_params)
    )
    assert recipes_before == recipes_after
