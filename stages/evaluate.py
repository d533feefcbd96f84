"""Embeddings -> metrics with intervals, and per-query results."""

from pathlib import Path

from pipeline.config.params import Params
from pipeline.config.resolve import settings
from pipeline.config.stages import EvaluateSettings
from pipeline.evaluation.run import evaluate_run, write
from pipeline.runtime.files import atomic_directory, write_json
from pipeline.runtime.stage import main


def run(dataset: str, method: str, seed: int) -> None:
    """Evaluates the networks of a run on the test classes, or on the benchmarks of a landmark set."""
    evaluate = settings(Params.of_stage(), "evaluate", EvaluateSettings)
    name = Path(dataset, method, str(seed))
    evaluation = evaluate_run(Path("data/embeddings", name), evaluate)
    with atomic_directory(Path("data/evaluation", name)) as directory:
        write(directory, evaluation)
    write_json(Path("data/metrics", dataset, method, f"{seed}.json"), evaluation.metrics)


if __name__ == "__main__":
    main(run, "dataset", "method", "seed")
