"""Shards -> the results of the MLRC protocol for one method on one data set: folds x repeats members, their
ensembles, mean and deviation."""

from pathlib import Path

from pipeline.config import EnsembleBlock, EnsembleSettings, Params, TrainSettings, settings
from pipeline.config.command import field_origins
from pipeline.config.inputs import EnsembleInputs, read_inputs
from pipeline.runtime.cores import usable_cores
from pipeline.runtime.stage import main
from pipeline.studies.ensemble.ensemble import ensemble
from pipeline.training.job import note_unwatched_checkpoint


def run(dataset: str, method: str) -> None:
    """Trains a method several times on every fold of the train classes and evaluates all ensembles.

    Resumes a killed run.
    """
    params, inputs = Params(), read_inputs(EnsembleInputs, "ensemble", dataset, method).settings
    machine = settings(params, "train", TrainSettings)
    protocol = EnsembleSettings(
        folds=inputs.folds,
        repeats=inputs.repeats,
        seed=inputs.seed,
        recall_at=inputs.recall_at,
        concurrent=settings(params, "ensemble", EnsembleBlock).concurrent,
    )
    cores = usable_cores()
    with field_origins(params, dataset, method):
        ensemble(dataset, method, inputs.recipe, protocol, machine, Path.cwd(), cores, inputs.member_code)
    note_unwatched_checkpoint(inputs.recipe, f"ensemble@{dataset}-{method}")


if __name__ == "__main__":
    main(run, "dataset", "method")
