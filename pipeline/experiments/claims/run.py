"""Computes claims with heads on frozen networks on the photos of a folder: maps of each network once, one
record per arm, then the verdicts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import cast

from unseen.data.splits import grouped
from unseen.evaluation.record import FLOOR, Record, Run
from unseen.evaluation.statistics.better import Comparison as Compared
from unseen.evaluation.statistics.better import Question, compare, judge
from unseen.evaluation.statistics.better import Verdict as Better
from unseen.evaluation.statistics.table import of_records
from unseen.experiments.claims.claim import OF_CLASSES, Claim, Claims, NetworkOfClaims
from unseen.experiments.claims.results import CellResult, Comparison, Effect, Results, Verdict, floor_of
from unseen.experiments.experiment import Experiment, Store, grid, records
from unseen.frozen.head_runner import HeadRunner, photos_of
from unseen.frozen.network import Network
from unseen.networks import lite0
from unseen.runtime.errors import UserError
from unseen.runtime.files import write_json
from unseen.runtime.names import say
from unseen.runtime.text import aligned

RESULTS, RECORDS = "claims.json", "records"  # in the output directory
LITE0 = "lite0"  # its weights are in an installed package


@dataclass(frozen=True)
class ClaimsPlan:
    """What to compute. names: of claims. weights: file of each network by its name in
    claims.yaml. groups: group of each class, for a second split. at_most: photos of a class. download: other
    networks may be downloaded."""

    photos: tuple[Path, ...]  # folders; heads take one
    output: Path
    names: tuple[str, ...]
    weights: Mapping[str, Path]
    groups: Mapping[str, str] | None = None
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    at_most: int = 40
    download: bool = False


def available(
    known: Mapping[str, NetworkOfClaims], names: Iterable[str], plan: ClaimsPlan
) -> dict[str, Network]:
    """The networks of `names` whose weights are available."""
    if unknown := plan.weights.keys() - known.keys():
        raise UserError(
            f"--weights: no claim has a network {min(unknown)}.", f"Known are: {', '.join(known)}."
        )
    networks = {}
    for name in dict.fromkeys(names):
        about, file = known[name], plan.weights.get(name)
        is_installed = name == LITE0 and lite0.installed() is not None
        if file is not None or is_installed or plan.download:
            statistics = about.statistics if file is not None else None
            networks[name] = Network(about.name, file, about.size, statistics, dict(about.arguments))
        else:
            say(f"claims: no weights of {name}: its comparisons are left out")
    if not networks:
        raise UserError(
            "The weights of no network of these claims are available.",
            "Name files with --weights NETWORK=FILE, install `unseen[lite0]`, or set --download.",
        )
    return networks


def run(claims: Claims, plan: ClaimsPlan) -> Results:
    """The results of the claims of a plan. Claims without an available network are left out. The splits are
    half of the classes at random, and half of the groups. Writes OUTPUT/claims.json, and keeps records in
    OUTPUT/records, with which a killed run continues.

    Raises UserError for photos that cannot be read, too few classes, an unknown name, and if no claim has an
    available network.
    """
    require_seeds(plan.seeds)
    chosen = {name: claims.claims[name] for name in plan.names}
    names_of_networks = (network for claim in chosen.values() for network in claim.networks)
    networks = available(claims.networks, names_of_networks, plan)
    (folder,) = plan.photos
    photos = photos_of(folder, plan.at_most)
    tests = {"random": grouped(photos.labels, 0.5, 1, 0).test}
    if plan.groups is not None:
        tests["groups"] = grouped(photos.labels, 0.5, 1, 0, plan.groups).test
    arms = {
        network: sorted(
            {arm for claim in chosen.values() if network in claim.networks for arm in arms_of(claim)}
        )
        for network in networks
    }
    heads = {arm: claims.arm(arm) for of_network in arms.values() for arm in of_network}
    runner = HeadRunner(heads, networks, photos, tests, plan.output)
    places_of = {network: [f"{network}/{split}" for split in tests] for network in networks}
    floors = grid([FLOOR], [*chain.from_iterable(places_of.values())], [0])
    trainings = tuple(
        run for network in networks for run in grid(arms[network], places_of[network], plan.seeds)
    )
    values = records(Experiment("claims", floors + trainings), runner, Store(plan.output / RECORDS))
    places = {
        name: [place for network in claim.networks for place in places_of.get(network, ())]
        for name, claim in chosen.items()
    }
    definitions = {name: claims.definition(name) for name, of_claim in places.items() if of_claim}
    results = Results(
        data=folder.resolve().name,
        photos=len(photos.paths),
        classes=len(set(photos.labels)),
        test_classes={split: len(test) for split, test in tests.items()},
        seeds=len(plan.seeds),
        floors=[floor_of(run.place, values[run]) for run in floors],
        cpu_seconds=round(sum(values[run].cpu_seconds for run in trainings)),
        at_most=plan.at_most,
        claims=judged(claims, definitions, places, values),
    )
    write_json(plan.output / RESULTS, results.model_dump(mode="json"))
    return results


def require_seeds(seeds: Sequence[int]) -> None:
    """Raises UserError for fewer seeds than an interval needs."""
    if len(seeds) < 2:
        raise UserError("A verdict needs two seeds or more.", "Set --seeds.")


def arms_of(claim: Claim) -> tuple[str, str]:
    return claim.first, claim.second


def judged(
    claims: Claims,
    definitions: Mapping[str, str],
    places: Mapping[str, Sequence[str]],
    records: Mapping[Run, Record],
) -> dict[str, Comparison]:
    """The verdicts on claims, which are one family, by name. definitions, places: of each claim; a place is
    `network/split`."""
    family = [_question(claims.claims[name], places[name]) for name in definitions]
    return {
        name: Comparison(
            definition=definition,
            **effect_of(verdict.comparison).model_dump(),
            p_value=round(verdict.adjusted, 5),
            verdict=_stated(claims.claims[name], verdict),
            cells=[_cell(claims.claims[name], place, records) for place in places[name]],
        )
        for (name, definition), verdict in zip(definitions.items(), judge(records, family), strict=True)
    }


def _question(claim: Claim, places: Sequence[str]) -> Question:
    floor = FLOOR if claim.metric in OF_CLASSES else None
    return Question(claim.first, claim.second, claim.metric, claim.margin, floor, tuple(places))


def _stated(claim: Claim, verdict: Better) -> Verdict:
    """What a verdict on the second arm says about a claim."""
    if verdict.outcome == "equal" and claim.expects == "equal":
        return "confirmed"
    if verdict.sign:
        return "confirmed" if verdict.sign == {"more": 1, "less": -1}.get(claim.expects) else "refuted"
    return cast(Verdict, verdict.outcome)


def _cell(claim: Claim, place: str, records: Mapping[Run, Record]) -> CellResult:
    network, split = place.split("/")
    (result,) = compare(of_records(records, arms_of(claim), claim.metric, [place]), [(0, 1)])
    means = {"first": round(result.first, 5), "second": round(result.second, 5)}
    return CellResult(network=network, split=split, **means, **effect_of(result).model_dump())


def effect_of(result: Compared) -> Effect:
    low, high = (None if end is None else round(end, 5) for end in (result.low, result.high))
    return Effect(difference=round(result.difference, 5), low=low, high=high)


def lines(claims: Claims, results: Results) -> Iterator[str]:
    """The verdicts as text."""
    rows = []
    for name, result in results.claims.items():
        claim = claims.claims[name]
        span = change(result, 100.0 if claim.metric in OF_CLASSES else 1.0)
        rows.append((name, result.verdict, span, claim.statement))
    return aligned(rows)


def change(effect: Effect, scale: float = 100.0, digits: int = 2) -> str:
    """`+0.31 [+0.05, +0.57]`: an effect with its interval; by default in points."""
    if effect.low is None or effect.high is None:
        return f"{scale * effect.difference:+.{digits}f} [too few classes]"
    low, high = scale * effect.low, scale * effect.high
    return f"{scale * effect.difference:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"
