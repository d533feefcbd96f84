"""One self-contained HTML page: template, style, figures and pictures in a single file that loads nothing. Same inputs, same bytes."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pipeline.report import names, provenance, words
from pipeline.report.comparison_section import compared, comparison_section, leader, seeds_section
from pipeline.report.ensemble_section import ensemble_section
from pipeline.report.evidence import data_section, gallery_section, provenance_section
from pipeline.report.geometry_section import geometry_section
from pipeline.report.inputs import Inputs
from pipeline.report.joint_intervals import joint_intervals
from pipeline.report.outcome import Shown, headline_of, results_section, training_section
from pipeline.report.published_section import published_section
from pipeline.report.summary import results, verdict
from pipeline.report.svg import dash_pattern
from pipeline.report.sweep_section import sweep_section
from pipeline.runtime.progress import track

_HERE = Path(__file__).parent


def build(inputs: Inputs, title: str, queries: int, neighbours: int, thumbnail: int) -> str:
    """The page. `queries` per gallery with `neighbours` matches each, pictures at most `thumbnail` pixels wide and high."""
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters |= {"percent": words.percent, "short": words.short, "shorten": names.shorten, "breaking": names.breaking}
    sets = [
        _data_set(inputs, dataset, f"set-{number}", queries, neighbours, thumbnail)
        for number, dataset in enumerate(track(inputs.datasets, "report", "data sets"))
    ]
    return environment.get_template("page.html").render(
        title=title,
        kicker=" · ".join(
            words.counted(len(axis), noun) for axis, noun in ((inputs.methods, "method"), (inputs.datasets, "data set"), (inputs.seeds, "seed"))
        ),
        css=Markup((_HERE / "page.css").read_text(encoding="utf-8")),
        sets=sets,
        several_seeds=len(inputs.seeds) > 1,
        versions=" · ".join(f"{name} {version}" for name, version in provenance.versions().items()),
    )


def _data_set(inputs: Inputs, dataset: str, anchor: str, queries: int, neighbours: int, thumbnail: int) -> dict[str, object]:
    shown = [Shown(f"{anchor}-recipe-{i}", method, i, dash_pattern(i)) for i, method in enumerate(inputs.methods)]
    joint = {method: joint_intervals(inputs.of(dataset, method)) for method in inputs.methods} if len(inputs.seeds) > 1 else {}
    found = results([(run.method, run.metrics) for run in inputs.of(dataset)], inputs.methods, joint)
    headline = headline_of(found)
    best, pairs = verdict(found, headline), compared(inputs, dataset)
    outcome = results_section(inputs, dataset, anchor, found, shown, leader(pairs, best.best, headline) if best else None)
    return {
        "id": anchor,
        "name": dataset,
        "methods": shown,
        "seeds": len(inputs.seeds),
        **outcome,
        "versus": comparison_section(pairs, shown),
        "ensembles": ensemble_section(inputs, dataset),
        "published": published_section(inputs, dataset, found, shown),
        "over_seeds": seeds_section(inputs, dataset, found, shown, outcome["metrics"]),
        **training_section(inputs, dataset, anchor, shown),
        "sweeps": sweep_section(inputs, dataset, anchor),
        "geometry": geometry_section(inputs, dataset, anchor, shown),
        "galleries": gallery_section(inputs, dataset, found, shown, queries, neighbours, thumbnail),
        **data_section(inputs, dataset),
        **provenance_section(inputs, dataset, shown),
    }
