"""Model -> embeddings of test and train images."""

from pathlib import Path

from pipeline.cluster.export import run_export
from pipeline.config.params import Params
from pipeline.config.resolve import settings
from pipeline.config.stages import ExportSettings
from pipeline.runtime.stage import main


def run(dataset: str, method: str, seed: int) -> None:
    """Embeds the images of a data set with the selected, the last and the untrained weights of a model."""
    wanted = settings(Params.of_stage(), "export", ExportSettings)
    name = Path(dataset, method, str(seed))
    run_export(Path("data/shards", dataset), Path("data/models", name), Path("data/embeddings", name), wanted)


if __name__ == "__main__":
    main(run, "dataset", "method", "seed")
