"""The curve of a run while it trains: data/state/live/<dataset>/<method>/<seed>.csv, and the trackers of
train.trackers. No stage depends on them, and they change no result.
"""

import contextlib
import json

from unseen.runtime.files import remove_partial_files
from unseen.runtime.trackers import TrackedRun, Trackers
from unseen.training.history import Row, write_history
from unseen.training.job import Job


class Live:
    """Writes the rows of a job with outputs, on rank 0 only."""

    def __init__(self, job: Job, rank: int) -> None:
        self._job, self._active = job, rank == 0 and job.outputs is not None
        self._path = job.root / f"data/state/live/{job.name}.csv"
        self._trackers: Trackers | None = None
        self._tracked = 0  # rows

    def show(self, rows: list[Row]) -> None:
        """Replaces the file by all rows so far, because a later row can have more columns and a resumed run
        continues. Trackers receive the rows that this process has not shown."""
        if not self._active:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_history(self._path, rows)
        self._track(rows)

    def end(self, rows: list[Row]) -> None:
        """Removes the file and the partial files of killed writers: the history of the run has its rows.
        Trackers receive the digests of the weights."""
        if not self._active:
            return
        self._path.unlink(missing_ok=True)
        remove_partial_files(self._path.parent, self._path.name)
        for folder in list(self._path.parents)[:3]:  # of the method, of the data set, live
            with contextlib.suppress(OSError):  # other runs have files in it
                folder.rmdir()
        trackers, outputs = self._track(rows), self._job.outputs
        if trackers is not None and outputs is not None:
            digests = json.loads((outputs.model / "recipe.json").read_bytes())["weights_sha256"]
            trackers.end({f"sha256/{name}": digest for name, digest in digests.items()})

    def _track(self, rows: list[Row]) -> Trackers | None:
        job = self._job
        if job.trackers and self._trackers is None:
            recipe = job.recipe.model_dump(mode="json")
            self._trackers = Trackers(job.trackers, TrackedRun(job.name, job.root, recipe, starts=True))
        if self._trackers is not None:
            for row in rows[self._tracked :]:
                self._trackers.log(
                    {name: row[name] for name in row if name != "iteration"}, int(row["iteration"])
                )
            self._tracked = len(rows)
        return self._trackers
