"""Model of one member of an MLRC ensemble -> its embeddings of the test images."""

from pathlib import Path

from unseen.cluster.export import embedder
from unseen.config.document import Params
from unseen.config.inputs import ExportInputs, read_inputs
from unseen.config.resolve import settings
from unseen.config.stages import ExportSettings
from unseen.data.embeddings import write
from unseen.data.shards import Shards
from unseen.experiments.folds.members import Member
from unseen.methods.artifact import training_settings
from unseen.runtime.stage import main


def run(dataset: str, method: str, fold: int, seed: int) -> None:
    """Embeds the test images with the weights that a fold selected."""
    inputs = read_inputs(ExportInputs, "export_fold", dataset, method, fold).settings
    workers = settings(Params(), "export", ExportSettings).workers
    export = ExportSettings(workers=workers, batch_size=inputs.batch_size, scales=inputs.scales)
    member = Member(dataset, method, fold, fold, seed)
    threads = training_settings(member.file("models")).threads
    with embedder(export, threads) as embed:
        shards = Shards(Path("data/shards", dataset))
        rows = shards.rows("test")
        vectors = embed(member.file("models"), "weights", shards.directory, rows, "export").embedding
    sides = shards.is_query[rows], shards.is_gallery[rows]
    write(member.file("embeddings", ".arrow"), rows, shards.labels[rows], vectors, *sides)


if __name__ == "__main__":
    main(run, "dataset", "method", "fold", "seed")
