"""Claims with whole networks on photos: published weights, all of which both arms train.

The classes of a set are divided once, into K test folds and classes that are never tested. Fold k is the test
classes of split `SET-k`; a training of it has all others. For each arm the classes that are never tested
choose a rate: half of them are trained on, and the others choose by the mean of MAP@R over the sets. All
trainings have one length. The floor is the features of the untrained network.
"""

from collections.abc import Sequence
from concurrent.futures import Executor
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

from pydantic import Field

from unseen.config.document import Document
from unseen.config.inputs import digest
from unseen.config.layers import Fields
from unseen.data.shards import Shards
from unseen.data.splits import grouped
from unseen.evaluation.record import FLOOR, Record, Run
from unseen.evaluation.statistics.better import compare
from unseen.evaluation.statistics.table import of_records
from unseen.experiments.claims.claim import Claim, Claims, NetworkOfClaims
from unseen.experiments.claims.results import Effect, Results, floor_of
from unseen.experiments.claims.run import (
    RECORDS,
    ClaimsPlan,
    arms_of,
    available,
    effect_of,
    judged,
    require_seeds,
)
from unseen.experiments.claims.whole_runner import WholeRunner, photo_shards
from unseen.experiments.experiment import Experiment, Store, cost, grid, records
from unseen.frozen.head import head
from unseen.frozen.head_runner import MODELS, STAGES, photos_of
from unseen.frozen.maps import Trunk, trunk
from unseen.methods.settings import Recipe
from unseen.runtime.errors import UserError
from unseen.runtime.files import write_json
from unseen.runtime.names import say
from unseen.runtime.revision import revision_of
from unseen.runtime.settings import Strict

PATH = Path(__file__).with_name("whole_photos.yaml")
COMMITTED = Path(__file__).with_name("whole_photos.json")
RESULTS = "whole.json"  # in the output directory
CHOICE = "choice"  # the split that chooses rates
UNTRAINED = {"training.iterations": 0, "training.start": "random"}  # changes of the recipe of a floor


class Trained(Strict):
    """A network, the arm whose untrained features are the floor of all its claims, its changes of every
    recipe, and the rates of which each arm has one."""

    network: NetworkOfClaims
    floor: str
    recipe: dict[str, Any]
    rates: dict[str, dict[str, Any]] = Field(min_length=1)


class WholePhotos(Strict):
    """The content of whole_photos.yaml."""

    networks: dict[str, Trained]
    recipe: dict[str, Any]  # changes of every arm, by dotted field
    arms: dict[str, dict[str, Any]]  # further changes of some arms
    excluded: dict[str, str]  # claim -> reason


class WholeResults(Results):
    """All results of a run."""

    commit: str | None  # of the code; None: outside a git repository
    rates: dict[str, str]  # `network/arm` -> the chosen rate
    # claim -> rate -> the effect on the classes that choose, if both arms have this rate (one seed)
    at_rates: dict[str, dict[str, Effect]]


@cache
def whole_photos(path: Path = PATH) -> WholePhotos:
    """The setting of a file. Raises UserError for an unknown key or a wrong value."""
    label = f"pipeline/experiments/claims/{path.name}" if path == PATH else None
    return Document(path, label).parsed(WholePhotos, "Correct the setting.")


def changes_of(claims: Claims, setting: WholePhotos, arm: str, network: str, rate: str) -> dict[str, Any]:
    """The changes of the published method of an arm, by dotted field."""
    own = setting.networks[network]
    of_arm = {field: value for field, value in claims.arms[arm].items() if field != "like"}
    return setting.recipe | own.recipe | of_arm | setting.arms.get(arm, {}) | own.rates[rate]


def definition(claims: Claims, setting: WholePhotos, name: str) -> str:
    """A digest of what determines the result of a claim: its arms, network, floor, rates and metric."""
    claim = claims.claims[name]
    network = claim.networks[0]
    arms = [
        (claims.arms[arm]["like"], changes_of(claims, setting, arm, network, rate))
        for arm in (*arms_of(claim), setting.networks[network].floor)
        for rate in setting.networks[network].rates
    ]
    described = setting.networks[network].network.model_dump(mode="json")
    return digest([arms, described, claim.metric, claim.expects, claim.margin])


class _Run:
    """The trainings of a plan, and what is known of them."""

    def __init__(
        self, claims: Claims, setting: WholePhotos, plan: ClaimsPlan, splits: int, pool: Executor | None
    ) -> None:
        self.claims, self.setting, self.plan, self.pool = claims, setting, plan, pool
        self.chosen = {name: claims.claims[name] for name in plan.names if name not in setting.excluded}
        if not self.chosen:
            name = plan.names[0]
            raise UserError(
                f"{name} is not compared with whole networks: {setting.excluded[name]}",
                "Compute it with heads: leave out --whole.",
            )
        known = {name: each.network for name, each in setting.networks.items()}
        names = [claim.networks[0] for claim in self.chosen.values()]
        self.trunks: dict[str, Trunk] = {
            name: trunk(network, plan.output / MODELS / f"{name}-whole", STAGES)
            for name, network in available(known, names, plan).items()
        }
        self.chosen = {name: claim for name, claim in self.chosen.items() if claim.networks[0] in self.trunks}
        self.shards: dict[str, Shards] = {}  # by split
        for folder in plan.photos:
            self._divide(folder, splits)
        self.choices = [split for split in self.shards if split.endswith(f"-{CHOICE}")]
        self.tests = [split for split in self.shards if split not in self.choices]
        self.rates: dict[tuple[str, str], str] = {}  # (arm, network) -> rate
        self.values: dict[Run, Record] = {}

    def _divide(self, folder: Path, splits: int) -> None:
        name, photos = folder.resolve().name, photos_of(folder, self.plan.at_most)
        if f"{name}-{CHOICE}" in self.shards:
            raise UserError(f"Two sets of photos have the name {name}.", "Rename a folder.")
        never, folds = grouped(photos.labels, 1 / (splits + 1), splits, 0)
        tests = {f"{name}-{number}": fold for number, fold in enumerate(folds, 1)}
        tests[f"{name}-{CHOICE}"] = grouped(sorted(never), 0.5, 1, 0).test
        for split, test in tests.items():
            classes = never if split.endswith(CHOICE) else frozenset(photos.labels)
            self.shards[split] = photo_shards(self.plan.output, split, folder, photos, classes, test)

    def cost(self) -> str:
        """All trainings of the plan in words."""
        arms = {(arm, claim.networks[0]): None for claim in self.chosen.values() for arm in arms_of(claim)}
        recipes = []
        for arm, network in arms:
            *others, rate = self.setting.networks[network].rates
            runs = (len(others) + 1) * len(self.choices) + len(self.tests) * len(self.plan.seeds)
            recipes += [self.recipe(arm, network, rate)] * runs
        return cost(recipes)

    def recipe(self, arm: str, network: str, rate: str, further: Fields | None = None) -> Recipe:
        changes = changes_of(self.claims, self.setting, arm, network, rate) | dict(further or {})
        return head(str(self.claims.arms[arm]["like"]), self.trunks[network], changes).recipe()

    def choose(self, name: str, arm: str, network: str) -> None:
        """Chooses the rate of an arm."""
        recipes = {
            (f"{arm}-{rate}", network): self.recipe(arm, network, rate)
            for rate in self.setting.networks[network].rates
        }
        places = [f"{network}/{split}" for split in self.choices]
        runs = grid([row for row, _ in recipes], places, self.plan.seeds[:1])
        self._compute(f"{name}: rate of {arm}", runs, recipes)

        def map_at_r(rate: str) -> float:
            return mean(self.values[run].mean("map_at_r") for run in runs if run.row == f"{arm}-{rate}")

        self.rates[arm, network] = max(self.setting.networks[network].rates, key=map_at_r)

    def train(self, name: str, claim: Claim) -> None:
        """Trains both arms of a claim at their rates."""
        network = claim.networks[0]
        for arm in arms_of(claim):
            if (arm, network) not in self.rates:
                self.choose(name, arm, network)
        recipes = {
            (arm, network): self.recipe(arm, network, self.rates[arm, network]) for arm in arms_of(claim)
        }
        places = [f"{network}/{split}" for split in self.tests]
        runs = grid([FLOOR], places, self.plan.seeds[:1]) + grid(arms_of(claim), places, self.plan.seeds)
        self._compute(name, runs, recipes)

    def _compute(self, title: str, runs: tuple[Run, ...], recipes: dict[tuple[str, str], Recipe]) -> None:
        floors = {
            (FLOOR, network): self.recipe(trained.floor, network, next(iter(trained.rates)), UNTRAINED)
            for network, trained in self.setting.networks.items()
            if network in self.trunks
        }
        runner = WholeRunner(self.shards, recipes | floors, self.pool)
        self.values |= records(Experiment(title, runs), runner, Store(self.plan.output / RECORDS))

    def results(self, finished: Sequence[str]) -> WholeResults:
        """The verdicts on the finished claims, which are one family."""
        claims = self.claims
        network_of = {name: claims.claims[name].networks[0] for name in finished}
        floors = grid(
            [FLOOR],
            [f"{network}/{split}" for network in dict.fromkeys(network_of.values()) for split in self.tests],
            self.plan.seeds[:1],
        )
        sets = [self.shards[f"{folder.resolve().name}-1"] for folder in self.plan.photos]
        tests = {split: self.shards[split] for split in self.tests}
        trained = [record.cpu_seconds for run, record in self.values.items() if run.row != FLOOR]
        revision = revision_of(Path(__file__).parents[3])
        return WholeResults(
            data=", ".join(folder.resolve().name for folder in self.plan.photos),
            photos=sum(map(len, sets)),
            classes=sum(len(each.class_names) for each in sets),
            test_classes={
                split: len(set(each.labels[each.rows("test")].tolist())) for split, each in tests.items()
            },
            at_most=self.plan.at_most,
            seeds=len(self.plan.seeds),
            cpu_seconds=round(sum(trained)),
            floors=[floor_of(run.place, self.values[run]) for run in floors],
            claims=judged(
                claims,
                {name: definition(claims, self.setting, name) for name in finished},
                {
                    name: [f"{network}/{split}" for split in self.tests]
                    for name, network in network_of.items()
                },
                self.values,
            ),
            commit=None if revision is None else revision.commit,
            rates={f"{network}/{arm}": rate for (arm, network), rate in self.rates.items()},
            at_rates={name: self._at_rates(claims.claims[name]) for name in finished},
        )

    def _at_rates(self, claim: Claim) -> dict[str, Effect]:
        places = [f"{claim.networks[0]}/{split}" for split in self.choices]
        effects = {}
        for rate in self.setting.networks[claim.networks[0]].rates:
            rows = [f"{arm}-{rate}" for arm in arms_of(claim)]
            (comparison,) = compare(of_records(self.values, rows, claim.metric, places), [(0, 1)])
            effects[rate] = effect_of(comparison)
        return effects


def run_whole(
    claims: Claims, setting: WholePhotos, plan: ClaimsPlan, splits: int, pool: Executor | None = None
) -> WholeResults:
    """The results of the claims of a plan, in its order, each with the first network of its list. Writes
    OUTPUT/whole.json after each claim, with all claims before it, and keeps a record of each training, with
    which a killed run continues. splits: test folds of each set. pool: processes that train.

    Raises UserError for fewer than two seeds, photos that cannot be read, too few classes, two sets of one
    name, and if no claim can be put to this setting or no network is available.
    """
    require_seeds(plan.seeds)
    run = _Run(claims, setting, plan, splits, pool)
    say(f"claims: {run.cost()}; those that have a record are not repeated")
    finished: list[str] = []
    for name, claim in run.chosen.items():
        run.train(name, claim)
        finished.append(name)
        results = run.results(finished)
        write_json(plan.output / RESULTS, results.model_dump(mode="json"))
    return results
