"""The trainings of the protocol: model k = 1 .. folds in each of its repeats, and how far each has come.

    seed of model k, repeat r (both from 1)  =  ensemble.seed + (r - 1) folds + (k - 1)

so that every member draws anew, and members stay what they are when repeats are added. (The released code of
Generalized Sum Pooling leaves its seeds open.) A member is kept in a directory named by all that decides its
bytes, until the stage has written its outs:

    data/state/ensemble/<dataset>/<method>/model-<k>-repeat-<r>-<identity>/
        state/  model/  history.csv  log.json      of its training (pipeline/training)
        done/                                      what the outs take over, once it is there the member is
        finished
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

EMBEDDINGS, RECORD, HISTORY = "test.arrow", "member.json", "history.csv"  # what `done` holds


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
        """That its training may take; patience can end it earlier."""
        return self.job.resolved().training.iterations

    def iteration(self) -> int:
        """How far it is, as its newest checkpoint says: where it would go on if it were killed now. All the
        way while it is exported."""
        if self.finished or self.trained:
            return self.iterations
        return max(
            (int(path.stem) for path in (self.directory / "state").rglob("*.pt") if path.stem.isdigit()),
            default=0,
        )


def plan(base: Job, settings: EnsembleSettings, state: Path, fingerprint: str, gpu: str) -> list[Member]:
    """All members, repeat by repeat. `base` is the job of an ordinary training, `fingerprint` that of its
    shards, `gpu` is train.gpu."""
    recipe, members = base.resolved(), []
    for number, (repeat, model) in enumerate(
        itertools.product(range(1, settings.repeats + 1), range(1, settings.folds + 1))
    ):
        training = recipe.training.model_copy(update={"fold": Fold(model=model, folds=settings.folds)})
        value = recipe.model_copy(update={"training": training}).model_dump(mode="json")
        job = replace(base, seed=settings.seed + number, recipe=value)
        name = digest(identity(job, fingerprint, 1, gpu))
        directory = state / f"model-{model}-repeat-{repeat}-{name}"
        outputs = Outputs(model=directory / "model", history=directory / HISTORY, log=directory / "log.json")
        members.append(
            Member(model, repeat, replace(job, state=directory / "state", outputs=outputs), directory, name)
        )
    return members


def check(base: Job, settings: EnsembleSettings, shards: Shards) -> None:
    """Raises UserError for what no member could be trained or judged on: no iterations, too few classes or
    images, no test image."""
    recipe = base.resolved()
    if recipe.training.iterations == 0:
        raise UserError(
            f"{base.method} on {base.dataset} trains for 0 iterations: all members would be the same "
            "network.",
            f"Take {base.method} out of run.ensembles, or set training.iterations of its recipe.",
        )
    if recipe.batch.sampling == "tuples":
        raise UserError(
            f"{base.method} on {base.dataset} trains on tuples, whose validation classes the data set "
            "itself names: there are no folds of them.",
            f"Take {base.method} out of run.ensembles.",
        )
    if not len(shards.rows("test")):
        raise UserError(
            f"{base.dataset} has no test image: its ensembles cannot be judged.",
            "Take a data set with test classes.",
        )
    rows = shards.rows("train")
    for model in range(1, settings.folds + 1):
        split = split_classes(
            rows,
            shards.labels[rows],
            recipe.training.validation_share,
            0,
            Fold(model=model, folds=settings.folds),
        )
        try:
            make_sampler(split.labels, recipe.batch, 0)
        except UserError as error:
            raise UserError(
                f"Model {model} of {settings.folds} folds, {split.classes} classes to train on: {error.what}",
                "A fold of the train classes is held out: lower batch.classes or batch.images_per_class of "
                "the recipe, or raise ensemble.folds.",
            ) from None


def adopt(members: list[Member], output: Path) -> None:
    """Takes members that an earlier run of the stage finished out of its outs: more repeats, or another K of
    Recall@K, train no model anew.

    Only those that would be trained to the same bytes, by their identity, and whose embeddings are as they
    were written.
    """
    for member in members:
        found = output / "members" / member.name
        if member.finished or not (found / RECORD).is_file():
            continue
        record = json.loads((found / RECORD).read_text(encoding="utf-8"))
        embeddings = found / EMBEDDINGS
        whole = embeddings.is_file() and sha256_of(embeddings) == record["sha256"]
        if whole and record["identity"] == member.identity:
            with atomic_directory(member.done) as aside:
                shutil.copytree(found, aside, dirs_exist_ok=True)
