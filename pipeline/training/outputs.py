"""The outputs of a finished run: the model, its history, and a log on which no stage depends."""

import shutil

from unseen.methods.artifact import load_saved_state, save_recipe, save_weights
from unseen.runtime.files import atomic_directory, write_json
from unseen.runtime.names import say
from unseen.training import history
from unseen.training.log import log_of
from unseen.training.resume import untrained_weights
from unseen.training.run import TrainingRun


def write_outputs(run: TrainingRun) -> None:
    """Writes the outputs that the job names, on rank 0; none if it names none.

    The selected weights are those of the best validation; under protocols published and refit the last ones.
    """
    outputs, record = run.job.outputs, run.record
    if outputs is None:
        return
    with atomic_directory(outputs.model) as aside:
        shutil.copyfile(untrained_weights(run), aside / "untrained.safetensors")
        save_weights(aside / "last.safetensors", run.method)
        if record.best_on_test is not None:
            load_saved_state(run.method, record.best_on_test_weights)
            save_weights(aside / "best_on_test.safetensors", run.method)
        if run.recipe.training.protocol == "selected":
            load_saved_state(run.method, record.best_weights)
            save_weights(aside / "weights.safetensors", run.method)
        else:
            shutil.copyfile(aside / "last.safetensors", aside / "weights.safetensors")
        sizes = run.split.classes, len(run.split.rows)
        save_recipe(
            aside / "recipe.json", run.recipe, run.job.dataset, run.job.seed, *sizes, run.identity["backbone"]
        )
    history.write_history(outputs.history, record.rows)
    for text in history.remarks(record.rows, run.job.method):
        say(f"note: {text}")
    numbers = {
        "iterations": record.total,
        "best_iteration": record.best_iteration,
        "resumed_at": record.resumed_at,
        "classes_with_one_image": run.sampler.excluded_classes,
    }
    images, worker = record.total * run.recipe.batch.size, run.worker
    log = log_of(run.clock.seconds, images, worker.world, run.job.threads, worker.device, **numbers)
    write_json(outputs.log, log)
