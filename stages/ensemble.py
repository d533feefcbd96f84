"""Embeddings of all folds and seeds of a method -> the metrics of the MLRC protocol: every
ensemble, mean and deviation."""

from pathlib import Path

from unseen.config.inputs import EnsembleInputs, read_inputs
from unseen.experiments.folds.ensemble import ensemble
from unseen.runtime.stage import main


def run(dataset: str, method: str) -> None:
    """Combines the embeddings of the members of a method and evaluates all ensembles."""
    inputs = read_inputs(EnsembleInputs, "ensemble", dataset, method).settings
    ensemble(dataset, method, inputs, Path.cwd())


if __name__ == "__main__":
    main(run, "dataset", "method")
