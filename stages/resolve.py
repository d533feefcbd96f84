"""params.yaml, published recipes, code -> the resolved file of every stage of the run. A mistake or a missing
archive stops the run here."""

from pathlib import Path

from pipeline.config import Params
from pipeline.config.inputs import ROOT
from pipeline.resolution.code import Code
from pipeline.resolution.files import check, files, plan
from pipeline.runtime.files import atomic_directory, write_json
from pipeline.runtime.stage import ROOT as PROJECT
from pipeline.runtime.stage import main


def run() -> None:
    """Validates params.yaml and the recipes of the run, looks for raw files, and writes data/resolved."""
    run = plan(Params())
    check(run)
    for (
        dataset
    ) in run.axes.datasets:  # stage ingest depends on this folder; the files of a set may be elsewhere
        Path("data/raw", dataset).mkdir(parents=True, exist_ok=True)
    with atomic_directory(ROOT) as directory:
        for path, content in files(run, Code(PROJECT)):
            target = directory / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            write_json(target, content)


if __name__ == "__main__":
    main(run)
