"""Embeddings -> metrics with intervals, and per-query results."""

from pathlib import Path

from unseen.cluster.task import main
from unseen.config.inputs import EvaluateInputs, read_inputs
from unseen.config.tracking import track_results
from unseen.evaluation.counted_gallery import tile_counter
from unseen.evaluation.headline import headline
from unseen.evaluation.run import evaluate_run, write
from unseen.runtime.files import atomic_directory
from unseen.runtime.sealed import write_digests, write_sealed


def run(dataset: str, method: str, seed: int) -> None:
    """Evaluates the networks of a run on the test classes, or on the benchmarks of a landmark set."""
    inputs = read_inputs(EvaluateInputs, "evaluate", dataset, method)
    name = Path(dataset, method, str(seed))
    evaluation = evaluate_run(Path("data/embeddings", name), inputs.settings.evaluate, tile_counter())
    with atomic_directory(Path("data/evaluation", name)) as directory:
        write(directory, evaluation)
        write_digests(directory)
    numbers = headline(evaluation.metrics, inputs.settings.evaluate.metrics)
    write_sealed(Path("data/metrics", dataset, method, f"{seed}.json"), numbers)
    track_results(dataset, method, seed, numbers, Path("data/evaluation", name))


if __name__ == "__main__":
    main(run, "dataset", "method", "seed")
