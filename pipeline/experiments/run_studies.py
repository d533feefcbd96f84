"""The studies that a run covers, as the report reads them."""

from pathlib import Path

from unseen.config.definitions import Definitions
from unseen.config.inputs import StudyInputs, StudyRowInputs
from unseen.experiments.catalogue import OF_USER, Catalogued, Entry, contrasts, entries, missing, studies


def covered(methods: tuple[str, ...], of_user: Path = OF_USER) -> list[tuple[Catalogued, tuple[Entry, ...]]]:
    """The studies all of whose rows are among `methods`, with their rows."""
    present = set(methods)
    rows_of = ((item, entries(item)) for item in studies(of_user).values() if item.study.has_rows)
    return [(item, rows) for item, rows in rows_of if {entry.method for entry in rows} <= present]


def studies_of_run(definitions: Definitions, methods: tuple[str, ...]) -> tuple[StudyInputs, ...]:
    """The studies that a run with these methods covers: all their rows are among them."""
    of_user = definitions.params.path.parent / OF_USER
    return tuple(
        StudyInputs(
            name=item.name,
            title=item.study.title,
            paper=item.study.source.paper if item.study.source else "",
            item=item.study.source.item if item.study.source else "",
            table=item.study.table,
            datasets=item.study.datasets,
            metric=item.study.metric,
            axes=item.study.numeric_axes,
            tied=item.study.tied,
            baselines=item.study.baselines,
            gain=item.study.gain,
            contrasts=contrasts(item.study, rows),
            figures=item.study.figures,
            shows=item.study.shows,
            missing=missing(item),
            rows=tuple(
                StudyRowInputs(
                    method=entry.method,
                    label=entry.label,
                    like=entry.row.like,
                    recipe=entry.row.recipe,
                    printed=entry.printed,
                )
                for entry in rows
            ),
        )
        for item, rows in (covered(methods, of_user) if definitions.rows else [])
    )
