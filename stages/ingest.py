"""Image files -> shards."""

from pathlib import Path

from unseen.config.inputs import IngestInputs, TrainInputs, read_inputs, resolved
from unseen.data.ingest.ingest import ingest
from unseen.data.ingest.remarks import remarks
from unseen.runtime.names import say
from unseen.runtime.stage import main


def run(dataset: str) -> None:
    """Reads the source of a data set and writes its shards."""
    settings = read_inputs(IngestInputs, "ingest", dataset).settings
    output = Path("data/shards") / dataset
    manifest = ingest(settings.source, settings.ingest, output, dataset)
    for remark in remarks(settings.source, manifest, output, dataset, _largest_side(dataset)):
        say(f"note: {remark}")


def _largest_side(dataset: str) -> int:
    """The longest to which a recipe of the run resizes the shorter side; 0 without a recipe."""
    names = [path.stem for path in Path("data/resolved/train", dataset).glob("*.json")]
    inputs = [resolved(TrainInputs, "train", dataset, name).settings.recipe.input for name in names]
    return max((each.resize or each.size for each in inputs), default=0)


if __name__ == "__main__":
    main(run, "dataset")
