"""The command `unseen evaluate`."""

import json
from collections.abc import Sequence
from pathlib import Path

from unseen.evaluation.external import Metrics, Result, Settings, evaluate_files
from unseen.report.words import name_of, percent, span
from unseen.runtime.text import aligned

_NO_INTERVAL = "too few classes"


def evaluation(
    paths: Sequence[Path],
    labels: Path | None,
    settings: Settings,
    as_json: bool,
    galleries: Sequence[Path] = (),
    gallery_labels: Path | None = None,
) -> str:
    """The metrics of one file, or of two files with their differences, as a table or as JSON. Raises
    UserError as `evaluate_files` does."""
    result = evaluate_files(paths, labels, settings, galleries, gallery_labels)
    return _json(paths, result) if as_json else _table(paths, result, settings)


def _json(paths: Sequence[Path], result: Result) -> str:
    content: dict[str, object] = {
        "files": [{"file": str(path), **metrics} for path, metrics in zip(paths, result.metrics, strict=True)]
    }
    if result.differences:
        content["differences"] = {
            name: {**difference.comparison._asdict(), "adjusted_p_value": difference.adjusted}
            for name, difference in result.differences.items()
        }
    return json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n"


def _table(paths: Sequence[Path], result: Result, settings: Settings) -> str:
    confidence = f"{100 * settings.confidence:g}%"
    lines: list[str] = []
    for path, metrics in zip(paths, result.metrics, strict=True):
        lone = int(metrics["lone_queries"])
        excluded = f" ({lone:,} without another image of their class, excluded)" if lone else ""
        sizes = (
            f"{metrics['queries']:,} queries{excluded}, {metrics['gallery']:,} images and "
            f"{metrics['classes']:,} classes in the gallery"
        )
        rows = [("", "percent", f"{confidence} interval"), *_metric_rows(metrics)]
        lines += [str(path), sizes, *aligned(rows, right=range(1, 3)), ""]
    if result.differences:
        rows = [("second - first", "points", f"{confidence} interval", "p", "p (Holm)")]
        for name, (comparison, adjusted) in result.differences.items():
            ends = _NO_INTERVAL
            if comparison.low is not None and comparison.high is not None:
                ends = span(comparison.low, comparison.high)
            p_values = (f"{comparison.p_value:.3g}", f"{adjusted:.3g}")
            rows.append((name_of(name), f"{100 * comparison.difference:+.1f}", ends, *p_values))
        lines += [*aligned(rows, right=range(1, 5)), ""]
        lines.append(
            "The files are two models of the same images. Name a gallery of other images with --gallery."
        )
    lines.append("Intervals are over classes. They do not contain the effect of the training seed.")
    return "\n".join(lines) + "\n"


def _metric_rows(metrics: Metrics) -> list[tuple[str, ...]]:
    shares = {name: value for name, value in metrics.items() if isinstance(value, float)}
    return [
        (
            name_of(name),
            percent(value),
            span(shares[f"{name}_low"], shares[f"{name}_high"]) if f"{name}_low" in shares else _NO_INTERVAL,
        )
        for name, value in shares.items()
        if name != "precision_at_1" and not name.endswith(("_low", "_high"))
    ]
