"""Commands that evaluate and compare: vectors of any tool, tasks of mteb, revisions of the project."""

import sys
from pathlib import Path

import click

from unseen.cli.commands.examples import Examples
from unseen.cli.commands.values import PATH, numbers
from unseen.runtime.stage import enter_project


@click.command(
    cls=Examples,
    examples="""
    unseen evaluate vectors.parquet
    unseen evaluate data/embeddings/parts/ms/0/test.arrow --json
    unseen evaluate vectors.npy --labels labels.txt --normalize
    unseen evaluate queries.parquet --gallery gallery.parquet
    unseen evaluate before.parquet after.parquet                   with differences, intervals and p values
    """,
)
@click.argument("embeddings", type=PATH, nargs=-1, required=True, metavar="EMBEDDINGS [EMBEDDINGS]")
@click.option("--labels", type=PATH, help="Labels of .npy files: .npy, or .txt with one label a line.")
@click.option(
    "--gallery",
    "galleries",
    type=PATH,
    multiple=True,
    help="The other images in which the rows search; with two EMBEDDINGS twice, in their order.",
)
@click.option("--gallery-labels", type=PATH, help="Labels of galleries in .npy files.")
@click.option(
    "--normalize", is_flag=True, help="Divide each vector by its length. Default: refuse other lengths."
)
@click.option("--recall-at", default="1,2,4,8", show_default=True, callback=numbers, help="K of Recall@K.")
@click.option("--class-means", is_flag=True, help="Also average over classes instead of queries.")
@click.option(
    "--confidence",
    type=click.FloatRange(0, 1, True, True),
    default=0.95,
    show_default=True,
    help="Of an interval.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of drawn sign flips.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def evaluate(
    embeddings: tuple[Path, ...],
    labels: Path | None,
    galleries: tuple[Path, ...],
    gallery_labels: Path | None,
    normalize: bool,
    recall_at: tuple[int, ...],
    class_means: bool,
    confidence: float,
    seed: int,
    as_json: bool,
) -> None:
    """Exact metrics of the vectors of any tool, with intervals.

    EMBEDDINGS is a Parquet or Arrow file, or a folder of these, with the columns `label` and `embedding`,
    optionally `row_id`, `is_query` and `is_gallery`; or a .npy file of shape (rows, dimensions) with
    --labels. Two files of the same rows are compared query by query.
    """
    if len(embeddings) > 2:
        raise click.UsageError(f"Expected one or two files, got {len(embeddings)}.")
    from unseen.cli.evaluation import evaluation
    from unseen.evaluation.external import Settings

    settings = Settings(recall_at, confidence, seed, class_means, normalize)
    sys.stdout.write(evaluation(embeddings, labels, settings, as_json, galleries, gallery_labels))


@click.command(
    cls=Examples,
    examples="""
    unseen diff HEAD                 what the workspace changes
    unseen diff main other-branch    second minus first
    """,
)
@click.argument("revision", metavar="REV")
@click.argument("other", required=False, metavar="[REV]")
def diff(revision: str, other: str | None) -> None:
    """Compare the metrics of two revisions query by query, with intervals and a verdict.

    REV is a commit, branch, tag or DVC experiment. Default of the second: the workspace.
    """
    enter_project()
    from unseen.cli.diff import difference

    sys.stdout.write(difference(revision, other))


@click.command(
    cls=Examples,
    examples="""
    unseen mteb SOPI2IRetrieval --queries queries.parquet --corpus corpus.parquet
    unseen mteb tasks/sop --name SOPI2IRetrieval --queries q.parquet --corpus c.parquet --output result.json
    """,
)
@click.argument("task", type=PATH)
@click.option("--queries", type=PATH, required=True, help="Tables of vectors: columns id and embedding.")
@click.option("--corpus", type=PATH, required=True, help="Likewise.")
@click.option("--name", help="The task in mteb. Default: the name of the folder.")
@click.option("--output", type=PATH, help="Also write the result file of mteb.")
def mteb(task: Path, queries: Path, corpus: Path, name: str | None, output: Path | None) -> None:
    """mteb's score of an image-retrieval task of MIEB, the exact one, and the benchmark's official number.

    TASK is a folder with the tables of the task, of which `qrels` is read. The result file has the scores of
    mteb 2.26, and below `unseen` the exact metrics and below `official` the official ones, with intervals.
    """
    from unseen.evaluation.mteb import TASKS, evaluate_task
    from unseen.runtime.files import json_text, write_json

    result = evaluate_task(task, queries, corpus, name or task.resolve().name)
    if output is not None:
        write_json(output, result)
    entry, metrics = result["scores"]["test"][0], result["unseen"]
    main = TASKS[result["task_name"]].main_score
    scores = {f"mteb {main}": entry["main_score"]} if main else {}
    scores |= {"exact": metrics, "official": result["official"]}
    sys.stdout.write(json_text(scores))
