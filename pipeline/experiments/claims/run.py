"""Computes claims on the photos of a folder: maps of each network once, one record per arm, then the
verdicts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from unseen.evaluation.record import Record, Run
from unseen.evaluation.statistics.table import of_records
from unseen.experiments.claims.claim import OF_CLASSES, Claim, Claims
from unseen.experiments.claims.photos import Plan, available, computed
from unseen.experiments.claims.results import CellResult, Comparison, Results
from unseen.experiments.claims.verdict import Effect, cell_of, of_classes, of_trainings, verdict
from unseen.runtime.errors import UserError
from unseen.runtime.files import write_json

RESULTS = "claims.json"  # in the output directory


def run(claims: Claims, plan: Plan) -> Results:
    """The results of the claims of a plan. Claims without an available network are left out. Writes
    OUTPUT/claims.json, and keeps records, with which a killed run continues.

    Raises UserError for photos that cannot be read, too few classes, an unknown name, and if no claim has an
    available network.
    """
    require_seeds(plan.seeds)
    chosen = {name: claims.claims[name] for name in plan.names}
    names_of_networks = (network for claim in chosen.values() for network in claim.networks)
    networks = available(claims.networks, names_of_networks, plan)
    arms = {
        network: {
            arm: claims.arm(arm)
            for arm in sorted(
                {arm for claim in chosen.values() if network in claim.networks for arm in arms_of(claim)}
            )
        }
        for network in networks
    }
    values = computed("claims", arms, networks, plan)
    compared_claims = {
        name: compared(
            claim,
            claims.definition(name),
            values.places(network for network in claim.networks if network in networks),
            values.records,
        )
        for name, claim in chosen.items()
        if any(network in networks for network in claim.networks)
    }
    results = Results(**values.fields, at_most=plan.at_most, claims=compared_claims)
    write_json(plan.output / RESULTS, results.model_dump(mode="json"))
    return results


def require_seeds(seeds: Sequence[int]) -> None:
    """Raises UserError for fewer seeds than an interval needs."""
    if len(seeds) < 2:
        raise UserError("A verdict needs two seeds or more.", "Set --seeds.")


def arms_of(claim: Claim) -> tuple[str, str]:
    return claim.first, claim.second


def compared(
    claim: Claim, definition: str, places: Sequence[str], records: Mapping[Run, Record]
) -> Comparison:
    """The verdict on a claim. places: `network/split` of each cell."""
    tables = [of_records(records, arms_of(claim), claim.metric, [place]) for place in places]
    if claim.metric in OF_CLASSES:
        images = {run.place: record.images for run, record in records.items() if run.row == claim.first}
        cells = [cell_of(table, images[place]) for place, table in zip(places, tables, strict=True)]
        effects = of_classes(cells)
    else:
        effects = of_trainings([table.by_seed()[1] - table.by_seed()[0] for table in tables])
    judged = [verdict(effect, claim.expects, claim.margin) for effect in effects]
    results = []
    for place, table, effect, of_cell in zip(places, tables, effects[1:], judged[1:], strict=True):
        network, split = place.split("/")
        first, second = (round(float(mean), 5) for mean in table.by_seed().mean(axis=1))
        results.append(
            CellResult(
                network=network, split=split, first=first, second=second, verdict=of_cell, **_plain(effect)
            )
        )
    return Comparison(definition=definition, verdict=judged[0], **_plain(effects[0]), cells=results)


def _plain(effect: Effect) -> dict[str, Any]:
    return {name: round(value, 5) for name, value in effect._asdict().items()}


def lines(claims: Claims, results: Results) -> Iterator[str]:
    """The verdicts as text."""
    width = max(map(len, results.claims), default=0)
    for name, result in results.claims.items():
        scale = 100 if claims.claims[name].metric in OF_CLASSES else 1
        span = f"{scale * result.difference:+.2f} ({scale * result.low:+.2f} to {scale * result.high:+.2f})"
        yield f"{name:<{width}}  {result.verdict:<9}  {span:<26}  {claims.claims[name].statement}"
