"""Copies of the numbers of a run for TensorBoard, MLflow and W&B (block `train.trackers`): each row of the
history, the final metrics with intervals, the resolved recipe, and the sha256 of the outputs.

They change no result: no digest of settings or code contains them, and stages write the same bytes without
them. One that fails gets a warning and no more numbers. Nothing leaves the machine unless MLFLOW_TRACKING_URI
or WANDB_MODE=online is set.
"""

import contextlib
import hashlib
import importlib.util
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Protocol

from pydantic import SerializeAsAny

from unseen.runtime.errors import UserError
from unseen.runtime.files import json_text
from unseen.runtime.flock import held
from unseen.runtime.names import say
from unseen.runtime.parts import Calls, PartSettings, made, opened

Numbers = Mapping[str, float]
# A server that does not answer delays a training by a minute at most. Reports to the makers are off.
_ENVIRONMENT = {
    "MLFLOW_ALLOW_FILE_STORE": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "WANDB_MODE": "offline",
    "WANDB_ERROR_REPORTING": "false",
}


class OutsideTracker(PartSettings):
    """A tracker of a user: a class with the methods of `Tracker`."""

    given: ClassVar[tuple[str, ...]] = ("run",)
    calls: ClassVar[Calls] = {"log": ("numbers", "step"), "end": ("summary",)}
    module: str


AnyTracker = SerializeAsAny[
    Annotated[Literal["tensorboard", "mlflow", "wandb"] | OutsideTracker, opened(OutsideTracker)]
]


class TrackedRun(NamedTuple):
    """A training, or the evaluation of its model. name: data set, method and seed. root: of the project.
    recipe: the resolved one. starts: whether it is a training, which logs all rows, also when it resumes."""

    name: str
    root: Path
    recipe: Mapping[str, Any]
    starts: bool

    @property
    def key(self) -> str:
        """Equal for the stages of a run; another one for another recipe."""
        text = json_text([str(self.root), self.name, self.recipe])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Tracker(Protocol):
    """One per stage, made with a TrackedRun: its argument `run`."""

    def log(self, numbers: Numbers, step: int) -> None:
        """A row of the history; step: the iteration."""

    def end(self, summary: Mapping[str, float | int | str]) -> None:
        """What a stage ends with: metrics `test/<name>`, and `sha256/<name>` of its outputs."""


class Trackers:
    """The trackers of a run. One that raises writes a warning and is not called again."""

    def __init__(self, settings: Sequence[AnyTracker], run: TrackedRun) -> None:
        for variable, value in _ENVIRONMENT.items():
            os.environ.setdefault(variable, value)
        self._active: dict[str, Tracker] = {}
        for each in settings:
            name = each if isinstance(each, str) else each.module
            with self._warned(name):
                self._active[name] = _OWN[each](run) if isinstance(each, str) else made(each, {"run": run})

    def log(self, numbers: Numbers, step: int) -> None:
        for name, tracker in list(self._active.items()):
            with self._warned(name):
                tracker.log(numbers, step)

    def end(self, summary: Mapping[str, float | int | str]) -> None:
        for name, tracker in list(self._active.items()):
            with self._warned(name):
                tracker.end(summary)

    @contextlib.contextmanager
    def _warned(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # of any library: no error of a tracker ends a training
            self._active.pop(name, None)
            reason = (str(error).strip().splitlines() or [""])[0]
            say(
                f"warning: tracker {name} gets no more numbers of this stage: "
                f"{type(error).__name__}: {reason}"
            )


def require_packages(settings: Sequence[AnyTracker]) -> None:
    """Raises UserError if the package of a tracker is not installed."""
    for name in filter(_OWN.__contains__, settings):
        if importlib.util.find_spec(str(name)) is None:
            raise UserError(
                f"train.trackers contains {name}, but the package {name} is not installed.",
                f"Install it (pip install 'unseen[{name}]'), or remove it from train.trackers.",
            )


class _TensorBoard:
    """Events in data/state/tensorboard. Those of an earlier training of the run are removed."""

    def __init__(self, run: TrackedRun) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        folder = run.root / "data/state/tensorboard" / run.name
        if run.starts:
            shutil.rmtree(folder, ignore_errors=True)
        self._writer = EventFileWriter(str(folder))
        if run.starts:
            self.log({"recipe": f"```\n{json_text(run.recipe)}```"}, 0)

    def log(self, numbers: Mapping[str, float | int | str], step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb
        from tensorboard.plugins.text.summary_v2 import text_pb

        for name, value in numbers.items():
            summary = text_pb(name, value) if isinstance(value, str) else scalar_pb(name, value)
            self._writer.add_event(Event(step=step, wall_time=time.time(), summary=summary))
        self._writer.flush()

    def end(self, summary: Mapping[str, float | int | str]) -> None:
        self.log(summary, 0)
        self._writer.close()


class _MLflow:
    """A run on the server MLFLOW_TRACKING_URI, or as files in data/state/mlflow: stages side by side cannot
    create one database of SQLite."""

    def __init__(self, run: TrackedRun) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        folder = run.root / "data/state/mlflow"
        folder.mkdir(parents=True, exist_ok=True)
        client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or folder.as_uri())
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "unseen")
        with held(folder / ".lock", os.O_RDWR | os.O_CREAT):  # stages side by side create one experiment
            known = client.get_experiment_by_name(name)
            experiment = client.create_experiment(name) if known is None else known.experiment_id
        earlier = client.search_runs([experiment], f"tags.unseen_key = '{run.key}'", max_results=1)
        tags = {"unseen_key": run.key}
        record = earlier[0] if earlier else client.create_run(experiment, run_name=run.name, tags=tags)
        self._client, self._id = client, record.info.run_id
        params = [Param(field, str(value)) for field, value in _flat(run.recipe).items()]
        for start in range(0, len(params), 100):  # the most that a server accepts at a time
            client.log_batch(self._id, params=params[start : start + 100])

    def log(self, numbers: Numbers, step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._client.log_batch(self._id, [Metric(name, value, now, step) for name, value in numbers.items()])

    def end(self, summary: Mapping[str, float | int | str]) -> None:
        from mlflow.entities import RunTag

        self.log({name: value for name, value in summary.items() if not isinstance(value, str)}, 0)
        tags = [RunTag(name, value) for name, value in summary.items() if isinstance(value, str)]
        self._client.log_batch(self._id, tags=tags)
        self._client.set_terminated(self._id)


class _WandB:
    """A run of W&B: files in data/state/wandb for `wandb sync`, unless WANDB_MODE is online."""

    def __init__(self, run: TrackedRun) -> None:
        import wandb

        folder = run.root / "data/state/wandb"
        folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "unseen"),
            id=run.key,
            name=run.name,
            resume="allow",
            dir=folder,
            config=dict(run.recipe),
            settings=wandb.Settings(init_timeout=30, console="off", silent=True),
        )

    def log(self, numbers: Numbers, step: int) -> None:
        self._run.log(dict(numbers), step=step)

    def end(self, summary: Mapping[str, float | int | str]) -> None:
        import wandb

        self._run.summary.update(dict(summary))
        self._run.finish()
        wandb.teardown()  # waits until the files are written


_OWN: dict[Any, Any] = {"tensorboard": _TensorBoard, "mlflow": _MLflow, "wandb": _WandB}


def _flat(block: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The fields of a recipe by their dotted names."""
    fields: dict[str, Any] = {}
    for name, value in block.items():
        fields |= (
            _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
        )
    return fields
