"""Stage ingest: image files -> shards."""

import sys
from pathlib import Path

from pipeline.config import Params, dataset_settings
from pipeline.ingest.ingest import ingest
from pipeline.ingest.remarks import remarks
from pipeline.runtime.stage import main


def run(dataset: str) -> None:
    """Reads the source of a data set and writes its shards."""
    source, settings = dataset_settings(Params.of_stage(), dataset)
    output = Path("data/shards") / dataset
    manifest = ingest(source, settings, output, dataset)
    sys.stderr.writelines(f"note: {line}\n" for line in remarks(source, manifest, output, dataset))


if __name__ == "__main__":
    main(run, "dataset")
