"""Image files -> shards."""

from pathlib import Path

from unseen.config.inputs import IngestInputs, read_inputs
from unseen.data.ingest.ingest import ingest
from unseen.data.ingest.remarks import remarks
from unseen.runtime.names import say
from unseen.runtime.stage import main


def run(dataset: str) -> None:
    """Reads the source of a data set and writes its shards."""
    settings = read_inputs(IngestInputs, "ingest", dataset).settings
    output = Path("data/shards") / dataset
    manifest = ingest(settings.source, settings.ingest, output, dataset)
    for remark in remarks(settings.source, manifest, output, dataset):
        say(f"note: {remark}")


if __name__ == "__main__":
    main(run, "dataset")
