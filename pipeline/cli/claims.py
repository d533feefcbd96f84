"""The command `unseen claims`."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from unseen.cli.ladder import groups_of
from unseen.experiments.claims.claim import claims
from unseen.experiments.claims.results import load, read
from unseen.experiments.claims.run import RESULTS, ClaimsPlan, lines, run
from unseen.experiments.claims.state import state_of, whole_state_of
from unseen.experiments.claims.whole_photos import COMMITTED, WholeResults, run_whole, whole_photos
from unseen.experiments.claims.whole_photos import RESULTS as WHOLE
from unseen.runtime.errors import UserError
from unseen.runtime.setting_names import suggestion
from unseen.runtime.stage import end_with_parent
from unseen.runtime.text import aligned


def listing() -> str:
    """One line per claim: its name, the item of the paper, the committed verdicts with whole and with frozen
    networks, the statement."""
    whole, frozen = read(COMMITTED, WholeResults), load()
    rows = [("claim", "source", "whole", "frozen", "statement")]
    rows += [
        (
            name,
            f"{claim.paper} {claim.item}",
            whole_state_of(name, whole),
            state_of(name, frozen),
            claim.statement,
        )
        for name, claim in claims().claims.items()
    ]
    return "\n".join([*aligned(rows), "", "docs/claims.md has the effects and their intervals.", ""])


def computed(
    names: tuple[str, ...],
    photos: tuple[Path, ...],
    output: Path,
    weights: Mapping[str, Path],
    groups: Path | None,
    seeds: int,
    at_most: int,
    download: bool,
    splits: int | None = None,
    jobs: int = 1,
) -> str:
    """Computes claims (all without a name) and returns their verdicts. splits: test folds of whole networks;
    None: heads on frozen networks. jobs: processes that train whole networks. Raises UserError as `run` and
    `run_whole` do."""
    all_claims = claims()
    for name in names:
        if name not in all_claims.claims:
            raise UserError(
                f"There is no claim {name}.",
                f"{suggestion(name, list(all_claims.claims))}`unseen claims --list` prints all.",
            )
    plan = ClaimsPlan(
        photos=photos,
        output=output,
        names=names or tuple(all_claims.claims),
        weights=weights,
        groups=None if groups is None else groups_of(groups),
        seeds=tuple(range(seeds)),
        at_most=at_most,
        download=download,
    )
    if splits is not None:
        with processes(jobs) as pool:
            whole = run_whole(all_claims, whole_photos(), plan, splits, pool)
        return "".join(f"{line}\n" for line in [*lines(all_claims, whole), f"{output / WHOLE}"])
    results = run(all_claims, plan)
    return "".join(f"{line}\n" for line in [*lines(all_claims, results), f"{output / RESULTS}"])


@contextlib.contextmanager
def processes(jobs: int) -> Iterator[Executor | None]:
    """Processes that end with this one; None: this one computes."""
    if jobs == 1:
        yield None
        return
    context, parent = get_context("spawn"), (os.getpid(),)
    with ProcessPoolExecutor(jobs, context, initializer=end_with_parent, initargs=parent) as pool:
        yield pool
