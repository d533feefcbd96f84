"""Embeddings -> metrics with intervals, and per-query results."""

from pathlib import Path

import faiss

from pipeline.cluster.task import main
from pipeline.config.inputs import EvaluateInputs, read_inputs
from pipeline.evaluation.counted_gallery import NumpyGallery, TileCounter
from pipeline.evaluation.headline import headline
from pipeline.evaluation.run import evaluate_run, write
from pipeline.runtime.files import atomic_directory, write_json


def run(dataset: str, method: str, seed: int) -> None:
    """Evaluates the networks of a run on the test classes, or on the benchmarks of a landmark set."""
    inputs = read_inputs(EvaluateInputs, "evaluate", dataset, method)
    name = Path(dataset, method, str(seed))
    evaluation = evaluate_run(Path("data/embeddings", name), inputs.settings.evaluate, tile_counter())
    with atomic_directory(Path("data/evaluation", name)) as directory:
        write(directory, evaluation)
    write_json(Path("data/metrics", dataset, method, f"{seed}.json"), headline(evaluation.metrics))


def tile_counter() -> TileCounter:
    """Counts ranks on the GPU if FAISS and torch have one, else on the CPU. The ranks are equal.

    FAISS is asked first: the Makefile installs its GPU build where there is a GPU, and its CPU build reports
    none. So torch, whose import takes seconds, is not imported where there is no GPU.
    """
    if faiss.get_num_gpus() == 0:
        return NumpyGallery
    from pipeline.device.counted_gallery import TorchGallery, has_gpu

    return TorchGallery if has_gpu() else NumpyGallery


if __name__ == "__main__":
    main(run, "dataset", "method", "seed")
