"""Writes docs/claims.md from the committed results: `python -m pipeline.claims.document > docs/claims.md`."""

import math
import sys
from collections import Counter
from collections.abc import Iterator

from pipeline.claims.claim import OF_CLASSES, Claim, Claims, claims
from pipeline.claims.results import CellResult, Comparison, Results, load
from pipeline.claims.verdict import CONFIDENCE, RESAMPLES

NOT_RUN = "not run"
_PAPERS = {"gsp": "GSP", "crt": "CRT", "multihead": "Multi-Head", "irt": "IRT"}
_METRICS = {
    "map_at_r": "MAP@R, points",
    "recall_at_1": "Recall@1, points",
    "embedding_density": "embedding density",
    "spectral_decay": "spectral decay, nats",
    "direction_covariance": "noise of gradient directions",
    "log_backward_seconds": "backward CPU seconds, ratio",
}
_HEAD = f"""# Claims

Written by `python -m pipeline.claims.document` from pipeline/claims/results.json; do not edit.

A claim of a paper is a paired comparison of two heads on a frozen pretrained network: two recipes that differ
in what the claim is about. `pipeline/claims/claims.yaml` contains them. One command computes them on any
photos in one folder per class:

```bash
unseen claims --photos grocery --groups pipeline/claims/grocery_groups.csv \\
  --weights mobilenetv2=mobilenetv2.safetensors --weights vit-tiny=vit_tiny.safetensors
unseen claims crt-over-ms irt-koleo --photos photos --download    # two claims; downloads the networks
unseen claims --list                                              # all claims with the verdicts below
```

A killed run continues. `--seeds N` sets the number of trainings of each arm.

## What is compared

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

d is second arm - first arm, paired by seed, and for MAP@R and Recall@1 by test class. The effect is the mean
of d over seeds, classes (weighted by their photos), splits and networks. Its {CONFIDENCE:.0%} interval
contains that of {RESAMPLES:,} resamples of seeds and classes (both drawn, for all splits and networks
together) and Student's t interval over seeds. For numbers of a whole training it is the latter.

- **confirmed**: the whole interval is on the side that the claim expects (for "equal": within the margin).
- **refuted**: the whole interval is on the other side (outside the margin).
- **open**: otherwise.

Intervals are not widened for the number of claims: of 20 true null effects one is expected to be called
significant. The cells (a network on a split) have the same rule.
"""


def state_of(name: str, results: Results) -> str:
    """The verdict on a claim, or `not run` without a result of its present definition."""
    result = results.claims.get(name)
    return NOT_RUN if result is None or result.definition != claims().definition(name) else result.verdict


def markdown(results: Results) -> str:
    """The page."""
    all_claims = claims()
    states = {name: state_of(name, results) for name in all_claims.claims}
    counts = Counter(states.values())
    tests = ", ".join(f"{kind}: {count}" for kind, count in results.test_classes.items())
    parts = [
        _HEAD,
        "## Results",
        "",
        f"Photos: Grocery Store (Klasson et al. 2019, MIT licence), {results.photos:,} photos of "
        f"{results.classes} classes, at most {results.at_most} of a class, 112 pixels on their shorter side. "
        f"Test classes: {tests}. {results.seeds} seeds. Trainings and evaluations took "
        f"{results.cpu_seconds / 60:.0f} CPU minutes.",
        "",
        ", ".join(f"{counts[state]} {state}" for state in ("confirmed", "refuted", "open", NOT_RUN)) + ".",
        "",
        *_floor(all_claims, states, results),
    ]
    for paper, title in _PAPERS.items():
        own = {name: claim for name, claim in all_claims.claims.items() if claim.paper == paper}
        parts += ["", f"### {title}", "", *_table(own, states, results), ""]
        parts += list(_cells(own, states, results))
    return "\n".join([*parts, "", *_arms(all_claims), ""])


def _floor(all_claims: Claims, states: dict[str, str], results: Results) -> Iterator[str]:
    """The features of each network and split, and how many arms are above them."""
    yield "### The floor"
    yield ""
    yield (
        "The frozen features without a head and without training: the mean of the last map, for ViT-Tiny the "
        "class token. Beside each number is how many arms of the claims on that metric are above it, by "
        "their mean over seeds. An arm below the floor has lost more by its random start than its training "
        "gained: a verdict on two such arms shows which of them loses less."
    )
    yield ""
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
        if claim.metric != metric or states[name] == NOT_RUN:
            continue
        for cell in results.claims[name].cells:
            if (cell.network, cell.split) == (network, split):
                values |= {claim.first: cell.first, claim.second: cell.second}
    return values


def _table(own: dict[str, Claim], states: dict[str, str], results: Results) -> Iterator[str]:
    yield "| claim | source | statement | verdict | effect | unit |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name, claim in own.items():
        effect = "" if states[name] == NOT_RUN else _effect(claim, results.claims[name])
        unit = _METRICS[claim.metric]
        yield f"| {name} | {claim.item} | {claim.statement} | {states[name]} | {effect} | {unit} |"


def _cells(own: dict[str, Claim], states: dict[str, str], results: Results) -> Iterator[str]:
    present = [name for name in own if states[name] != NOT_RUN]
    if not present:
        return
    yield "| claim | network | split | first arm | second arm | effect | verdict |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for name in present:
        for cell in results.claims[name].cells:
            first, second = (_number(own[name], value) for value in (cell.first, cell.second))
            row = (name, cell.network, cell.split, first, second, _effect(own[name], cell), cell.verdict)
            yield f"| {' | '.join(row)} |"


def _effect(claim: Claim, result: Comparison | CellResult) -> str:
    values = (result.difference, result.low, result.high)
    if claim.metric == "log_backward_seconds":
        middle, low, high = (f"{math.exp(value):.2f}" for value in values)
    elif claim.metric in OF_CLASSES:
        middle, low, high = (f"{100 * value:+.2f}" for value in values)
    else:
        middle, low, high = (f"{value:+.5f}" for value in values)
    return f"{middle} [{low}, {high}]"


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
    sys.stdout.write(markdown(load()))
