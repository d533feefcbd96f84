"""Model -> embeddings of test and train images, and the positions that determine those of test images."""

from pathlib import Path

from unseen.cluster.export import run_export
from unseen.config.document import Params
from unseen.config.inputs import ExportInputs, read_inputs
from unseen.config.resolve import settings
from unseen.config.stages import ExportSettings
from unseen.runtime.stage import main
from unseen.training.export.position_maps import export_positions


def run(dataset: str, method: str, seed: int) -> None:
    """Embeds the images of a data set with the selected, the last and the untrained weights of a model,
    and writes the positions that determine the embeddings of test images."""
    inputs = read_inputs(ExportInputs, "export", dataset, method).settings
    workers = settings(Params(), "export", ExportSettings).workers
    export = ExportSettings(workers=workers, batch_size=inputs.batch_size, scales=inputs.scales)
    name = Path(dataset, method, str(seed))
    shards, model, embeddings = (
        Path("data/shards", dataset),
        Path("data/models", name),
        Path("data/embeddings", name),
    )
    run_export(shards, model, embeddings, export)
    export_positions(shards, model, embeddings / "test.arrow", Path("data/positions", f"{name}.arrow"))


if __name__ == "__main__":
    main(run, "dataset", "method", "seed")
