"""The curve of a run while it trains: data/state/live/<dataset>/<method>/<seed>.csv, and events for
TensorBoard if train.tensorboard is set. No stage depends on them, and they change no result.
"""

import contextlib
import importlib.util
import shutil
from typing import Any

from unseen.runtime.errors import UserError
from unseen.runtime.files import remove_partial_files
from unseen.training.history import Row, write_history
from unseen.training.job import Job


def require_tensorboard() -> None:
    """Raises UserError if the package is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        raise UserError(
            "train.tensorboard is true, but the package tensorboard is not installed.",
            "Install it (`pip install tensorboard`), or set train.tensorboard to false.",
        )


class Live:
    """Writes the rows of a job with outputs, on rank 0 only."""

    def __init__(self, job: Job, rank: int) -> None:
        name = f"{job.dataset}/{job.method}/{job.seed}"
        self._active = rank == 0 and job.outputs is not None
        self._path = job.root / f"data/state/live/{name}.csv"
        self._events = job.root / f"data/state/tensorboard/{name}" if job.tensorboard else None
        self._writer: Any = None

    def show(self, rows: list[Row]) -> None:
        """Replaces the file by all rows so far, because a later row can have more columns and a resumed run
        continues. TensorBoard receives the last row."""
        if not self._active:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_history(self._path, rows)
        if self._events is not None:
            self._add_scalars(rows)

    def end(self) -> None:
        """Removes the file and the partial files of killed writers: the history of the run has its rows. The
        events remain."""
        if not self._active:
            return
        self._path.unlink(missing_ok=True)
        remove_partial_files(self._path.parent, self._path.name)
        for folder in list(self._path.parents)[:3]:  # of the method, of the data set, live
            with contextlib.suppress(OSError):  # other runs have files in it
                folder.rmdir()
        if self._writer is not None:
            self._writer.close()

    def _add_scalars(self, rows: list[Row]) -> None:
        row = rows[-1]
        step = int(row["iteration"])
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            if len(rows) == 1 and self._events is not None:
                shutil.rmtree(self._events, ignore_errors=True)  # of an earlier run
            # Events of a killed run from this step on are of steps that are taken again.
            self._writer = SummaryWriter(self._events, purge_step=step)
        for name, value in row.items():
            if name != "iteration":
                self._writer.add_scalar(name, value, step)
        self._writer.flush()
