"""The command `unseen claims`."""

from collections.abc import Mapping
from pathlib import Path

from pipeline.claims.claim import claims
from pipeline.claims.document import state_of
from pipeline.claims.frozen_study import RESULTS as STUDIES
from pipeline.claims.frozen_study import frozen_studies, run_studies, study_lines
from pipeline.claims.material import Plan
from pipeline.claims.results import load
from pipeline.claims.run import RESULTS, lines, run
from pipeline.config.names import suggestion
from pipeline.runtime.errors import UserError
from unseen.ladder import groups_of


def listing() -> str:
    """One line per claim: its name, the item of the paper, the committed verdict, the statement."""
    committed = load()
    rows = [
        (name, f"{claim.paper} {claim.item}", state_of(name, committed), claim.statement)
        for name, claim in claims().claims.items()
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    text = ["  ".join((*map(str.ljust, row[:3], widths), row[3])) for row in rows]
    return "\n".join([*text, "", "docs/claims.md has the effects and their intervals.", ""])


def computed(
    names: tuple[str, ...],
    studies: tuple[str, ...],
    photos: Path,
    output: Path,
    weights: Mapping[str, Path],
    groups: Path | None,
    seeds: int,
    at_most: int,
    download: bool,
) -> str:
    """Computes claims (all without a name) and returns their verdicts; or computes studies and returns their
    numbers. Raises UserError as `run` and `run_studies` do."""
    all_claims, all_studies = claims(), frozen_studies()
    for name in studies:
        if name not in all_studies:
            raise UserError(
                f"{name} is not a study on frozen networks.", f"Known are: {', '.join(all_studies)}."
            )
    for name in names:
        if name not in all_claims.claims:
            raise UserError(
                f"There is no claim {name}.",
                f"{suggestion(name, list(all_claims.claims))}`unseen claims --list` prints all.",
            )
    plan = Plan(
        photos=photos,
        output=output,
        names=studies or names or tuple(all_claims.claims),
        weights=weights,
        groups=None if groups is None else groups_of(groups),
        seeds=tuple(range(seeds)),
        at_most=at_most,
        download=download,
    )
    if studies:
        text = "".join(f"{line}\n" for line in study_lines(run_studies(all_studies, all_claims, plan)))
        return f"{text}{output / STUDIES}\n"
    results = run(all_claims, plan)
    return "".join(f"{line}\n" for line in [*lines(all_claims, results), f"{output / RESULTS}"])
