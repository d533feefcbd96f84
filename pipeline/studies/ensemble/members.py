"""The trainings of the protocol: model k = 1 .. folds in each repeat, and the progress of each.

    seed of model k, repeat r (both from 1)  =  ensemble.seed + (r - 1) folds + (k - 1)

so that every member has its own seed, and additional repeats leave existing members unchanged. (The released
code of Generalized Sum Pooling does not define its seeds.) Until the stage has written its outputs, a member
is in a directory whose name contains a digest of everything that determines its bytes:

    data/state/ensemble/<dataset>/<method>/model-<k>-repeat-<r>-<identity>/
        state/  model/  history.csv  log.json      of its training (pipeline/training)
        done/                                      the files for the outputs; exists if the member is finished
"""

import itertools
import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.config.blocks import Fold
from pipeline.config.inputs import digest
from pipeline.config.stages import EnsembleSettings
from pipeline.data.class_split import split_classes
from pipeline.data.sampler import make_sampler
from pipeline.data.shards import Shards
from pipeline.runtime.digest import sha256_of
from pipeline.runtime.errors import UserError
from pipeline.runtime.files import atomic_directory
from pipeline.training.job import Job, Outputs
from pipeline.training.state import identity

EMBEDDINGS, RECORD, HISTORY = "test.arrow", "member.json", "history.csv"  # the files in `done`


@dataclass(frozen=True)
class Member:
    """One training of the protocol."""

    model: int
    repeat: int
    job: Job
    directory: Path
    identity: str

    @property
    def name(self) -> str:
        return f"model-{self.model}-repeat-{self.repeat}"

    @property
    def title(self) -> str:
        return f"model {self.model}, repeat {self.repeat}"

    @property
    def done(self) -> Path:
        return self.directory / "done"

    @property
    def finished(self) -> bool:
        return self.done.is_dir()

    @property
    def trained(self) -> bool:
        assert self.job.outputs is not None
        return self.job.outputs.log.is_file()  # the last file that a training writes

    @property
    def iterations(self) -> int:
        """The largest number of iterations of its training; patience can end it earlier."""
        return self.job.resolved().training.iterations

    def iteration(self) -> int:
        """The iteration of its newest checkpoint, from which a killed training resumes. After training:
        `iterations`."""
        if self.finished or self.trained:
            return self.iterations
        checkpoints = (self.directory / "state").rglob("*.pt")
        return max((int(path.stem) for path in checkpoints if path.stem.isdigit()), default=0)


def plan(base: Job, settings: EnsembleSettings, state: Path, fingerprint: str, gpu: str) -> list[Member]:
    """All members, ordered by repeat, then by model. `base` is the job of an ordinary training, `fingerprint`
    that of its shards, `gpu` is train.gpu."""
    recipe, members = base.resolved(), []
    cells = itertools.product(range(1, settings.repeats + 1), range(1, settings.folds + 1))
    for number, (repeat, model) in enumerate(cells):
        fold = Fold(model=model, folds=settings.folds)
        training = recipe.training.model_copy(update={"protocol": "selected", "fold": fold})
        value = recipe.model_copy(update={"training": training}).model_dump(mode="json")
        job = replace(base, seed=settings.seed + number, recipe=value)
        name = digest(identity(job, fingerprint, gpu, training.precision))
        directory = state / f"model-{model}-repeat-{repeat}-{name}"
        outputs = Outputs(model=directory / "model", history=directory / HISTORY, log=directory / "log.json")
        job = replace(job, state=directory / "state", outputs=outputs)
        members.append(Member(model, repeat, job, directory, name))
    return members


def check(base: Job, settings: EnsembleSettings, shards: Shards) -> None:
    """Raises UserError if members cannot be trained or evaluated: zero iterations, batches of tuples, too few
    classes or images, no test image."""
    recipe = base.resolved()
    if recipe.training.iterations == 0:
        raise UserError(
            f"{base.method} on {base.dataset} trains for 0 iterations: all members would be the same "
            "network.",
            f"Remove {base.method} from run.ensembles, or set training.iterations of its recipe.",
        )
    if recipe.batch.sampling == "tuples":
        raise UserError(
            f"{base.method} on {base.dataset} trains on tuples. The data set defines the validation classes "
            "of tuples, so that folds are not possible.",
            f"Remove {base.method} from run.ensembles.",
        )
    if not len(shards.rows("test")):
        raise UserError(
            f"{base.dataset} has no test image: its ensembles cannot be evaluated.",
            "Use a data set with test classes.",
        )
    rows = shards.rows("train")
    labels, share = shards.labels[rows], recipe.training.validation_share
    for model in range(1, settings.folds + 1):
        split = split_classes(rows, labels, share, 0, Fold(model=model, folds=settings.folds))
        try:
            make_sampler(split.labels, recipe.batch, 0)
        except UserError as error:
            raise UserError(
                f"Model {model} of {settings.folds} folds, {split.classes} training classes: {error.what}",
                "One fold of the train classes is held out. Lower batch.classes or batch.images_per_class of "
                "the recipe, or raise ensemble.folds.",
            ) from None


def reuse_finished(members: list[Member], output: Path) -> None:
    """Copies finished members from the outputs of an earlier run, so that more repeats, or another K of
    Recall@K, train only the members that are missing.

    It copies a member only if its identity is equal, so that training would give the same bytes, and if its
    embeddings are undamaged.
    """
    for member in members:
        earlier = output / "members" / member.name
        if member.finished or not (earlier / RECORD).is_file():
            continue
        record = json.loads((earlier / RECORD).read_text(encoding="utf-8"))
        embeddings = earlier / EMBEDDINGS
        undamaged = embeddings.is_file() and sha256_of(embeddings) == record["sha256"]
        if undamaged and record["identity"] == member.identity:
            with atomic_directory(member.done) as directory:
                shutil.copytree(earlier, directory, dirs_exist_ok=True)
