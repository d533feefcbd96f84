"""Writes docs/claims.md from the committed results of both settings: whole networks and heads on frozen
networks, on photos. `python -m tools.docs.claims > docs/claims.md`."""

import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean
from textwrap import wrap
from typing import get_args

from tools.docs.markdown import wrapped
from unseen.experiments.claims.claim import OF_CLASSES, Claim, Claims, claims
from unseen.experiments.claims.results import (
    CellResult,
    Comparison,
    Effect,
    Floor,
    Results,
    Verdict,
    load,
    read,
)
from unseen.experiments.claims.run import arms_of, change
from unseen.experiments.claims.state import NOT_RUN, state_of, whole_state_of
from unseen.experiments.claims.whole_photos import COMMITTED as WHOLE_PHOTOS
from unseen.experiments.claims.whole_photos import WholePhotos, WholeResults, whole_photos

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
_PAPERS = {"gsp": "GSP", "crt": "CRT", "multihead": "Multi-Head", "irt": "IRT"}
_METRICS = {
    "map_at_r": "MAP@R, points",
    "recall_at_1": "Recall@1, points",
    "embedding_density": "embedding density",
    "spectral_decay": "spectral decay, nats",
    "direction_covariance": "noise of gradient directions",
    "log_backward_seconds": "backward CPU seconds, ratio",
}
_TEXT = """# Claims

Written by `python -m tools.docs.claims` from whole_photos.json and results.json of
pipeline/experiments/claims; do not edit.

A claim of a paper is a paired comparison of two recipes that differ in what the claim is about.
`pipeline/experiments/claims/claims.yaml` contains them. There are two settings: whole pretrained networks
that are trained on photos, and [heads on a frozen network](#frozen-networks-on-photos) with photos. One
command computes the claims on any photos in one folder per class:

```bash
unseen claims --whole --photos grocery --photos caltech -j 2 \\
  --weights mobilenetv2=mobilenetv2.safetensors --weights vit-tiny=vit_tiny.safetensors
unseen claims --photos grocery --groups pipeline/experiments/claims/grocery_groups.csv \\
  --weights mobilenetv2=mobilenetv2.safetensors --weights vit-tiny=vit_tiny.safetensors
unseen claims crt-over-ms irt-koleo --photos photos --download    # two claims; downloads the networks
unseen claims --list                                              # all claims with the verdicts below
```

A killed run continues. `--seeds N` sets the number of trainings of each arm.

__WHOLE_PHOTOS__

## Frozen networks on photos

- The network is frozen and runs once for each photo; its maps are kept in float16. Only heads are trained:
  pooling, projection, attention, prototypes, proxies. A claim about the training of a whole network is
  therefore tested only in part. Photos are not augmented.
- All arms have one setting: 128 dimensions (192 on ViT-Tiny for IRT), 8 x 4 photos, AdamW with learning rate
  0.001, 150 steps, the last iterate. It was chosen once, before any claim was computed, by the mean MAP@R of
  four methods on held-out training classes. Heads start as published, not from the published embedding.
- The verdicts hold at this budget and this start. A head starts with random layers, which remove information
  that the frozen features have; the [floor](#the-floor) is these features without a head. Heads with many new
  layers (CRT, Multi-Head) start further from it than a linear projection. More steps do not make up for this:
  `crt-over-ms-long` repeats one comparison with four times the steps, and CRT is then further behind. Methods
  with epsilon 0.5 (GSP with proxy losses) are close to the average by design.
- Photos have 128 pixels per side, so that the last map of a convolutional network has 4 x 4 positions and
  that of ViT-Tiny 8 x 8.
- Two class-disjoint splits: half of the classes at random, and half of the product groups (`random`,
  `groups`). No test class is trained on or chooses a setting.

## The verdict

The [rule for better](statistics.md) decides. d is second arm - first arm, paired by seed, and for MAP@R and
Recall@1 by test class. The effect is the mean of d over seeds, classes (weighted by their photos), splits and
networks. All claims of a setting are one family, in which Holm's method adjusts p.

- **confirmed**: the second arm is better by the rule (for "less": worse; for "equal": the whole interval is
  within the margin of the claim).
- **refuted**: the rule decides for the other side (for "equal": for a difference of the margin or more).
- **equal**: the whole interval is within 0.3 points of MAP@R or 0.5 points of Recall@1.
- **below the floor**: the better arm is not above the [floor](#the-floor), by the mean over splits and
  networks. There is no verdict.
- **open**: otherwise.

The cells (a network on a split) have intervals and no verdict.
"""
_START, _REST = _TEXT.split("\n__WHOLE_PHOTOS__\n")


def markdown(results: Results, of_whole: WholeResults) -> str:
    """The page. results, of_whole: of frozen and of whole networks."""
    all_claims = claims()
    states = {name: state_of(name, results) for name in all_claims.claims}
    tests = ", ".join(f"{kind}: {count}" for kind, count in results.test_classes.items())
    parts = [
        _START,
        *_whole_photos(all_claims, whole_photos(), of_whole, states),
        _REST,
        "## Results",
        "",
        f"Photos: Grocery Store (Klasson et al. 2019, MIT licence), {results.photos:,} photos of "
        f"{results.classes} classes, at most {results.at_most} of a class, 112 pixels on their shorter side. "
        f"Test classes: {tests}. {results.seeds} seeds. Trainings and evaluations took "
        f"{results.cpu_seconds / 60:.0f} CPU minutes. Backward passes were timed on a busy machine.",
        "",
        f"Frozen networks: {_counts(states)}.",
        "",
        *_floor(all_claims, states, results),
    ]
    for paper, title in _PAPERS.items():
        own = {name: claim for name, claim in all_claims.claims.items() if claim.paper == paper}
        parts += ["", f"### {title}", "", *_table(own, states, results), ""]
        parts += list(_cells(own, states, results))
    return wrapped("\n".join([*parts, "", *_arms(all_claims), ""]))


_IMAGENET = (
    " Many classes of Caltech-101 are also classes of ImageNet, from whose weights the networks start: their "
    "floor is high there."
)


def _weaker_is_below(claim: Claim, cells: Sequence[CellResult], floors: Sequence[Floor]) -> bool:
    """Whether the mean of an arm over the cells is below that of the floor."""
    floor = fmean(getattr(each, claim.metric) for each in floors if each.network == claim.networks[0])
    return min(fmean(each.first for each in cells), fmean(each.second for each in cells)) < floor


def _whole_photos(
    all_claims: Claims, setting: WholePhotos, results: WholeResults, frozen: dict[str, str]
) -> Iterator[str]:
    """The section on whole networks on photos. frozen: the state of each claim on frozen networks."""
    states = {name: whole_state_of(name, results) for name in all_claims.claims}
    judged = {name: all_claims.claims[name] for name in states if states[name] in VERDICTS}
    sets, places = results.data.split(", "), len(results.test_classes)
    steps, seeds = setting.recipe["training.iterations"], f"{results.seeds} seeds"
    divisions = f"{places // len(sets)} division{'s' * (places > len(sets))} of the classes of each set"
    networks = ", ".join(f"`{name}`" for name in dict.fromkeys(each.networks[0] for each in judged.values()))
    tests = ", ".join(f"{split}: {count}" for split, count in results.test_classes.items())
    mobilenet = setting.networks["mobilenetv2"]
    lengths = {
        arm: own["training.iterations"] for arm, own in setting.arms.items() if "training.iterations" in own
    }
    longer = ", ".join(f"`{arm}` {length}" for arm, length in lengths.items())
    yield "## Whole networks on photos"
    yield ""
    yield "`pipeline/experiments/claims/whole_photos.yaml` contains the setting. The command of these"
    yield "results, with the `--weights` above:"
    yield ""
    yield "```bash"
    command = f"unseen claims {' '.join(judged)}"
    yield from (f"{line} \\" for line in wrap(command, 106, subsequent_indent="  ", break_on_hyphens=False))
    yield f"  --whole {' '.join(f'--photos {name}' for name in sets)} --seeds {results.seeds} \\"
    yield f"  --splits {places // len(sets)} --at-most {results.at_most}"
    yield "```"
    yield ""
    yield (
        f"- All weights of {networks} are trained from the published ones, on photos of "
        f"{mobilenet.network.size} pixels with random crops and flips. The last map "
        "of mobilenetv2 has 6 x 6 positions, that of vit-tiny 6 x 6 tokens. A claim has the first network of "
        "its list."
    )
    yield (
        f"- Every arm that is trained has {steps} steps ({longer}) of 8 x 4 photos, AdamW with a cosine "
        "schedule and 5 steps of warm-up, the published size of its head, and the last iterate. The last "
        "layer of each head starts at the principal directions of what it reads (`training.start: "
        "principal`). The network of mobilenetv2 has the learning rate "
        f"{mobilenet.recipe['optimizer.learning_rate']}."
    )
    yield (
        "- An arm has one of three rates: that of its head, 1, 3 or 10 times the rate of the network; for "
        "vit-tiny, whose methods have no head, that of the network. Classes that are never tested choose it: "
        "half of them are trained on with one seed, the others choose by MAP@R, the mean over the sets."
    )
    yield (
        f"- Photos: {results.data} ({results.photos:,} photos of {results.classes} classes, at most "
        f"{results.at_most} of a class). Test classes: {tests}. A verdict holds over the sets; the cells "
        f"show each.{_IMAGENET if 'caltech' in sets else ''}"
    )
    yield (
        f"- {seeds} and {divisions}, {places} in all. {steps} steps are early training. "
        f"All trainings took {results.cpu_seconds / 3600:.1f} "
        f"CPU hours at commit {(results.commit or 'unknown')[:12]}."
    )
    yield ""
    below = [
        name
        for name, claim in judged.items()
        if claim.metric in OF_CLASSES and _weaker_is_below(claim, results.claims[name].cells, results.floors)
    ]
    decided = [name for name in below if states[name] in ("confirmed", "refuted")]
    yield (
        f"{len(judged)} of {len(states)} claims: {_counts({name: states[name] for name in judged})}"
        f"{f'; {len(decided)} of the decided ones with the weaker arm below the floor' if decided else ''}. "
        "[The others](#claims-that-were-not-run) were not run in this setting."
    )
    yield ""
    yield (
        "| claim | source | statement | verdict | effect | unit | first arm | second arm | floor | sets | "
        "frozen networks |"
    )
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for name, claim in judged.items():
        result = results.claims[name]
        first, second = (fmean(getattr(cell, side) for cell in result.cells) for side in ("first", "second"))
        floors = [each for each in results.floors if each.network == claim.networks[0]]
        has_floor = claim.metric in OF_CLASSES
        floor = _number(claim, fmean(getattr(each, claim.metric) for each in floors)) if has_floor else "-"
        values = (
            _effect(claim, result),
            _METRICS[claim.metric],
            _number(claim, first),
            _number(claim, second),
        )
        source = f"{_PAPERS[claim.paper]}, {claim.item}"
        is_weak = name in below and states[name] != "below the floor"
        verdict = f"{states[name]}, weaker arm below the floor" if is_weak else states[name]
        row = (name, source, claim.statement, verdict, *values, floor, results.data, frozen[name])
        yield f"| {' | '.join(row)} |"
    yield ""
    if below:
        yield (
            f"The weaker arm of {len(below)} claims is below the floor: {', '.join(below)}. These steps may "
            "be too few for it: the effect does not show how good a longer training of it is."
        )
        yield ""
    changed = {name for name in judged if states[name] != frozen[name]}
    yield (
        f"{len(changed)} of these {len(judged)} verdicts differ from those of "
        "[frozen networks](#frozen-networks-on-photos), where a head starts at random layers and the arms of "
        "most claims on accuracy stay below the floor."
    )
    yield ""
    yield from _cells(judged, states, results)
    yield ""
    yield from _floor_table(all_claims, states, results)
    yield ""
    yield from _rates(judged, setting, results)
    yield ""
    yield from _not_run(states, setting, results)


def _not_run(states: dict[str, str], setting: WholePhotos, results: WholeResults) -> Iterator[str]:
    """The claims without a verdict, each with its reason."""
    reasons = [
        f"- {', '.join(f'`{name}`' for name in names)}: {reason}"
        for reason, names in (
            (reason, [name for name in setting.excluded if setting.excluded[name] == reason])
            for reason in dict.fromkeys(setting.excluded.values())
        )
    ]
    if missing := [name for name, state in states.items() if state == NOT_RUN]:
        rates = len(next(iter(setting.networks.values())).rates)
        sets = len(results.data.split(", "))
        trainings = 2 * (rates * sets + results.seeds * len(results.test_classes))
        reasons.append(
            f"- {', '.join(f'`{name}`' for name in missing)}: the command computes each, by {trainings} "
            "trainings with these seeds and divisions, or fewer if it shares an arm with another claim. They "
            "were left out for their time."
        )
    if reasons:
        yield "### Claims that were not run"
        yield ""
        yield from reasons


def _rates(judged: dict[str, Claim], setting: WholePhotos, results: WholeResults) -> Iterator[str]:
    """How the effects depend on the rate of both arms."""
    signs = {name: {each.difference > 0 for each in results.at_rates[name].values()} for name in judged}
    equal = [name for name in judged if len(signs[name]) == 1]
    yield "### The rates"
    yield ""
    yield (
        "The rates that were chosen for the first and the second arm, and the effect if both arms have the "
        "same rate: on the classes that choose, with one seed, so that the interval is over classes alone. "
        "A metric of a training as a whole has none with one training. "
        f"The effect has one sign at all rates for {len(equal)} of {len(judged)} claims"
        f"{': ' if equal else ''}{', '.join(equal)}. The effect of another "
        "claim depends on the rate. An arm with the largest rate may have a better one beyond it."
    )
    yield ""
    rates = list(setting.networks[next(iter(judged.values())).networks[0]].rates)
    yield f"| claim | chosen | {' | '.join(rates)} | unit |"
    yield f"| --- | --- |{' --- |' * len(rates)} --- |"
    for name, claim in judged.items():
        chosen = ", ".join(results.rates[f"{claim.networks[0]}/{arm}"] for arm in arms_of(claim))
        effects = [_effect(claim, results.at_rates[name][rate]) for rate in rates]
        yield f"| {' | '.join([name, chosen, *effects, _METRICS[claim.metric]])} |"


def _floor(all_claims: Claims, states: dict[str, str], results: Results) -> Iterator[str]:
    """The features of each network and split, and how many arms are above them."""
    yield "### The floor"
    yield ""
    yield (
        "The frozen features without a head and without training: the mean of the last map, for ViT-Tiny the "
        "class token. Beside each number is how many arms of the claims on that metric are above it, by "
        "their mean over seeds. An arm below the floor has lost more by its random start than its training "
        "gained: there is no verdict on two such arms."
    )
    yield ""
    yield from _floor_table(all_claims, states, results)


def _floor_table(all_claims: Claims, states: dict[str, str], results: Results) -> Iterator[str]:
    yield "| network | split | MAP@R | arms above | Recall@1 | arms above |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for floor in results.floors:
        cells = [floor.network, floor.split]
        for metric in OF_CLASSES:
            value = getattr(floor, metric)
            arms = _values_of_arms(all_claims, states, results, metric, floor.network, floor.split)
            above = sum(mean > value for mean in arms.values())
            cells += [f"{100 * value:.1f}", f"{above} of {len(arms)}" if arms else "no claim"]
        yield f"| {' | '.join(cells)} |"


def _values_of_arms(
    all_claims: Claims, states: dict[str, str], results: Results, metric: str, network: str, split: str
) -> dict[str, float]:
    """The mean of each arm of the claims on a metric, on a network and split."""
    values: dict[str, float] = {}
    for name, claim in all_claims.claims.items():
        if claim.metric != metric or states[name] not in VERDICTS:
            continue
        for cell in results.claims[name].cells:
            if (cell.network, cell.split) == (network, split):
                values |= {claim.first: cell.first, claim.second: cell.second}
    return values


def _table(own: dict[str, Claim], states: dict[str, str], results: Results) -> Iterator[str]:
    yield "| claim | source | statement | verdict | effect | unit |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name, claim in own.items():
        effect = _effect(claim, results.claims[name]) if states[name] in VERDICTS else ""
        row = (name, claim.item, claim.statement, states[name], effect, _METRICS[claim.metric])
        yield f"| {' | '.join(row)} |"


def _cells(own: dict[str, Claim], states: dict[str, str], results: Results) -> Iterator[str]:
    yield "| claim | network | split | first arm | second arm | effect |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name in (name for name in own if states[name] in VERDICTS):
        for cell in results.claims[name].cells:
            first, second = (_number(own[name], value) for value in (cell.first, cell.second))
            row = (name, cell.network, cell.split, first, second, _effect(own[name], cell))
            yield f"| {' | '.join(row)} |"


def _counts(states: dict[str, str]) -> str:
    counts = Counter(states.values())
    return ", ".join(f"{counts[state]} {state}" for state in (*VERDICTS, NOT_RUN) if counts[state])


def _effect(claim: Claim, result: Effect) -> str:
    if claim.metric == "log_backward_seconds" and result.low is not None and result.high is not None:
        middle, low, high = (math.exp(value) for value in (result.difference, result.low, result.high))
        text = f"{middle:.2f} [{low:.2f}, {high:.2f}]"
    elif claim.metric in OF_CLASSES:
        text = change(result)
    else:
        text = (
            change(result, 1.0, 5) if result.low is not None else f"{result.difference:+.5f} [one training]"
        )
    p_value = result.p_value if isinstance(result, Comparison) else None
    if p_value is None:
        return text
    return f"{text}, p {p_value:.2g}" if p_value else f"{text}, p < 0.00001"  # of 5 digits


def _number(claim: Claim, value: float) -> str:
    if claim.metric == "log_backward_seconds":
        return f"{1000 * math.exp(value):.2f} ms"
    return f"{100 * value:.1f}" if claim.metric in OF_CLASSES else f"{value:.3f}"


def _arms(all_claims: Claims) -> list[str]:
    return [
        "## Arms",
        "",
        "The arms and their changes of the published recipes; all have "
        + ", ".join(f"`{field}: {value}`" for field, value in all_claims.setting.items())
        + " unless they set it.",
        "",
        "| arm | like | changes |",
        "| --- | --- | --- |",
        *(
            f"| {name} | {arm['like']} | "
            + ", ".join(f"`{field}: {value}`" for field, value in arm.items() if field != "like")
            + " |"
            for name, arm in all_claims.arms.items()
        ),
    ]


if __name__ == "__main__":
    sys.stdout.write(markdown(load(), read(WHOLE_PHOTOS, WholeResults)))
