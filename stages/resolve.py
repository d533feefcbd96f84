"""params.yaml, published recipes, code -> the resolved file of every stage of the run. A mistake in
params.yaml or a missing archive stops the run in this stage."""

from pathlib import Path

from unseen.config.document import Params
from unseen.config.inputs import ROOT
from unseen.experiments.plan.facts import FOLDER, Facts
from unseen.experiments.plan.files import check, files, plan
from unseen.runtime.code import code_of
from unseen.runtime.files import atomic_directory, write_json
from unseen.runtime.stage import PACKAGE, main


def run() -> None:
    """Validates params.yaml and the recipes, checks that raw files exist, and writes data/resolved."""
    run = plan(Params())
    facts = Facts(FOLDER)
    check(run, facts)
    for dataset in run.axes.datasets:
        # Stage ingest depends on this folder, also if the files of the data set are in another one.
        Path("data/raw", dataset).mkdir(parents=True, exist_ok=True)
    with atomic_directory(ROOT) as directory:
        for path, content in files(run, code_of(PACKAGE, Path()), facts):
            target = directory / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            write_json(target, content)


if __name__ == "__main__":
    main(run)
