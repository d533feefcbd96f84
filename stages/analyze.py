"""Embeddings and positions of a run -> their density, spectrum and similarities, its curves, and the shares
of weight on the object."""

from pathlib import Path

from unseen.cluster.task import main
from unseen.config.inputs import AnalyzeInputs, read_inputs
from unseen.data.ingest.sources.parts import creature_masks
from unseen.evaluation.analysis.analyze import analyze, content_of, numbers
from unseen.evaluation.analysis.object_shares import object_share_rows
from unseen.evaluation.analysis.verification import Intervals
from unseen.runtime.sealed import write_sealed


def run(dataset: str, method: str, seed: int) -> None:
    """Analyses the embeddings of a run."""
    inputs = read_inputs(AnalyzeInputs, "analyze", dataset, method).settings
    settings, name = inputs.analyze, (dataset, method, seed)
    intervals = Intervals(settings.bootstrap, inputs.intervals.confidence, inputs.intervals.seed)
    networks = analyze(Path("data/embeddings"), name, settings, intervals)
    mask = None if inputs.parts is None else creature_masks(inputs.parts)
    shares = [] if mask is None else object_share_rows(Path("data/positions"), name, mask)
    write_sealed(Path("data/analysis", dataset, method, f"{seed}.json"), content_of(networks, shares))
    metrics = Path("data/metrics", dataset, method, f"{seed}-analysis.json")
    write_sealed(metrics, numbers(networks, shares))


if __name__ == "__main__":
    main(run, "dataset", "method", "seed")
