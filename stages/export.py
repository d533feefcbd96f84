"""Model -> embeddings of test and train images."""

from pathlib import Path

from pipeline.cluster.export import run_export
from pipeline.config import ExportSettings, Params, settings
from pipeline.config.inputs import ExportInputs, read_inputs
from pipeline.runtime.stage import main


def run(dataset: str, method: str, seed: int) -> None:
    """Embeds the images of a data set with the selected, the last and the untrained weights of a model."""
    inputs = read_inputs(ExportInputs, "export", dataset, method).settings
    workers = settings(Params(), "export", ExportSettings).workers
    export = ExportSettings(workers=workers, batch_size=inputs.batch_size, scales=inputs.scales)
    name = Path(dataset, method, str(seed))
    run_export(Path("data/shards", dataset), Path("data/models", name), Path("data/embeddings", name), export)


if __name__ == "__main__":
    main(run, "dataset", "method", "seed")
