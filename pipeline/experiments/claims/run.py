"""Computes claims on the photos of a folder: maps of each network once, one record per arm, then the
verdicts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from unseen.evaluation.record import Record
from unseen.experiments.claims.claim import OF_CLASSES, Claim, Claims
from unseen.experiments.claims.material import Plan, available
from unseen.experiments.claims.results import CellResult, Comparison, Results
from unseen.experiments.claims.trainings import train
from unseen.experiments.claims.verdict import Cell, Effect, of_classes, of_trainings, verdict
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
    records, splits, fields = train("claims", arms, networks, plan)
    computed = {
        name: compared(
            claim,
            claims.definition(name),
            [(network, kind) for network in claim.networks if network in networks for kind in splits],
            records,
            plan.seeds,
        )
        for name, claim in chosen.items()
        if any(network in networks for network in claim.networks)
    }
    results = Results(**fields, at_most=plan.at_most, claims=computed)
    write_json(plan.output / RESULTS, results.model_dump(mode="json"))
    return results


def require_seeds(seeds: Sequence[int]) -> None:
    """Raises UserError for fewer seeds than an interval needs."""
    if len(seeds) < 2:
        raise UserError("A verdict needs two seeds or more.", "Set --seeds.")


def arms_of(claim: Claim) -> tuple[str, str]:
    return claim.first, claim.second


def compared(
    claim: Claim,
    definition: str,
    places: Sequence[tuple[str, str]],
    records: Mapping[tuple[str, str, str, int], Record],
    seeds: Sequence[int],
) -> Comparison:
    """The verdict on a claim. places: network and split of each cell. records: by network, arm, split and
    seed."""

    def of(arm: str, network: str, kind: str) -> list[Record]:
        return [records[network, arm, kind, seed] for seed in seeds]

    pairs = [(of(claim.first, *place), of(claim.second, *place)) for place in places]
    if claim.metric in OF_CLASSES:
        cells = [_cell(claim.metric, first, second) for first, second in pairs]
        effects = of_classes(cells)
        means = [tuple(_mean(values, cell.images) for values in cell[:2]) for cell in cells]
    else:
        values = [
            tuple(np.array([each.training[claim.metric] for each in arm]) for arm in pair) for pair in pairs
        ]
        effects = of_trainings([second - first for first, second in values])
        means = [(float(first.mean()), float(second.mean())) for first, second in values]
    judged = [verdict(effect, claim.expects, claim.margin) for effect in effects]
    return Comparison(
        definition=definition,
        verdict=judged[0],
        **_plain(effects[0]),
        cells=[
            CellResult(
                network=network,
                split=kind,
                first=round(first, 5),
                second=round(second, 5),
                verdict=of_cell,
                **_plain(effect),
            )
            for (network, kind), (first, second), effect, of_cell in zip(
                places, means, effects[1:], judged[1:], strict=True
            )
        ],
    )


def _plain(effect: Effect) -> dict[str, Any]:
    return {name: round(value, 5) for name, value in effect._asdict().items()}


def _cell(metric: str, first: Sequence[Record], second: Sequence[Record]) -> Cell:
    images = first[0].images
    rows = [
        np.array([[each.classes[metric][name] for name in images] for each in arm]) for arm in (first, second)
    ]
    return Cell(rows[0], rows[1], tuple(images), np.array(list(images.values()), np.float64))


def _mean(values: np.ndarray, images: np.ndarray) -> float:
    return float((values * images).sum(axis=1).mean() / images.sum())


def lines(claims: Claims, results: Results) -> Iterator[str]:
    """The verdicts as text."""
    width = max(map(len, results.claims), default=0)
    for name, result in results.claims.items():
        scale = 100 if claims.claims[name].metric in OF_CLASSES else 1
        span = f"{scale * result.difference:+.2f} ({scale * result.low:+.2f} to {scale * result.high:+.2f})"
        yield f"{name:<{width}}  {result.verdict:<9}  {span:<26}  {claims.claims[name].statement}"
