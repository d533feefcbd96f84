"""Image files -> shards."""

import sys
from pathlib import Path

from unseen.config.inputs import IngestInputs, read_inputs
from unseen.data.ingest.ingest import ingest
from unseen.data.ingest.remarks import remarks
from unseen.runtime.stage import main


def run(dataset: str) -> None:
    """Reads the source of a data set and writes its shards."""
    settings = read_inputs(IngestInputs, "ingest", dataset).settings
    output = Path("data/shards") / dataset
    manifest = ingest(settings.source, settings.ingest, output, dataset)
    sys.stderr.writelines(f"note: {line}\n" for line in remarks(settings.source, manifest, output, dataset))


if __name__ == "__main__":
    main(run, "dataset")
