"""The results of a run for the trackers of its training."""

import json
from collections.abc import Mapping
from pathlib import Path

from unseen.config.document import Params
from unseen.config.inputs import TrainInputs, resolved
from unseen.config.resolve import settings
from unseen.config.stages import TrainSettings
from unseen.runtime.errors import UserError
from unseen.runtime.names import say
from unseen.runtime.sealed import DIGESTS
from unseen.runtime.trackers import TrackedRun, Trackers


def track_results(
    dataset: str, method: str, seed: int, numbers: Mapping[str, float | int | str], folder: Path
) -> None:
    """Sends the metrics and the digests of the files of `folder` to train.trackers, if there is one. Writes a
    warning if params.yaml, or the recipe, cannot be read: the results are complete."""
    try:
        trackers = settings(Params(), "train", TrainSettings).trackers
        if trackers:
            recipe = resolved(TrainInputs, "train", dataset, method).settings.recipe.model_dump(mode="json")
    except UserError as error:
        say(f"warning: no tracker gets these results: {error.what}")
        return
    if trackers:
        run = TrackedRun(f"{dataset}/{method}/{seed}", Path.cwd().resolve(), recipe, starts=False)
        digests = json.loads((folder / DIGESTS).read_bytes())
        results = {f"test/{name}": value for name, value in numbers.items()}
        files = {f"sha256/{name}": digest for name, digest in digests.items()}
        Trackers(trackers, run).end(results | files)
