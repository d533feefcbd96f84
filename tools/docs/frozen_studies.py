"""Writes docs/frozen_studies.md from the committed results:
`python -m tools.docs.frozen_studies > docs/frozen_studies.md`."""

import sys
from collections.abc import Iterator

from tools.docs.markdown import wrapped
from unseen.evaluation.statistics.better import CONFIDENCE
from unseen.experiments.catalogue import Catalogued, study_of
from unseen.experiments.claims.claim import claims
from unseen.experiments.claims.frozen_study import (
    METRICS,
    FrozenStudy,
    StudyResult,
    StudyResults,
    frozen_studies,
    load_studies,
    points,
    printed_dataset,
)
from unseen.experiments.claims.run import change
from unseen.experiments.printed.model import names
from unseen.report.words import name_of

FLOOR = "frozen features, no head"
_HEAD = """# Studies on frozen networks

Written by `python -m tools.docs.frozen_studies` from pipeline/experiments/claims/frozen_studies.json; do not
edit.

The rows of a [study](studies.md) as heads on a frozen pretrained network, on real photographs of classes that
are not in training. A laptop computes a study in minutes:

```bash
unseen claims {options} \\
  --photos grocery --groups pipeline/experiments/claims/grocery_groups.csv \\
  --weights mobilenetv2=mobilenetv2.safetensors --weights vit-tiny=vit_tiny.safetensors
```

- Photos, networks, splits and setting are those of the [claims](claims.md#frozen-networks-on-photos): the
  network is frozen, only heads are trained, 8 x 4 photos, AdamW with learning rate 0.001, 150 steps, the last
  iterate. A row has its published loss, pooling and weights of terms; its network, dimension, batch,
  optimizer and schedule are replaced. The tables therefore compare the rows as heads; their numbers are not
  those of the papers.
- A number is the mean over the splits; ± is the deviation over seeds. The difference is that of MAP@R from
  the reference row, in points, with its {confidence} interval over seeds and test classes. The verdict
  is that of the [rule for better](statistics.md): the reference is the control, the others are one family.
- The first row is the floor: the features of the frozen network without a head and without training, which
  are the mean of its last map or the class token of a transformer
  ([by network and split](claims.md#the-floor)).
"""


def markdown(results: StudyResults) -> str:
    """The page."""
    tests = ", ".join(f"{kind}: {count}" for kind, count in results.test_classes.items())
    options = " ".join(f"--study {name}" for name in results.studies)
    parts = [
        _HEAD.format(options=options, confidence=f"{CONFIDENCE:.0%}"),
        "## Results",
        "",
        f"Photos: Grocery Store (Klasson et al. 2019, MIT licence), {results.photos:,} photos of "
        f"{results.classes} classes. Test classes: {tests}. {results.seeds} seeds. Trainings and evaluations "
        f"took {results.cpu_seconds / 60:.0f} CPU minutes.",
    ]
    for name, result in results.studies.items():
        parts += ["", *_section(name, frozen_studies()[name], result, results)]
    return wrapped("\n".join([*parts, ""]))


def _section(name: str, study: FrozenStudy, result: StudyResult, results: StudyResults) -> Iterator[str]:
    item = study_of(name)
    source = item.study.source
    assert source is not None
    yield f"### {names()[source.paper]} {source.item}: {item.study.title}"
    yield ""
    changes = ", ".join(f"`{field}: {value}`" for field, value in study.recipe.items())
    networks = ", ".join(f"`{claims().networks[network].name}`" for network in study.networks)
    yield f"Study `{name}` on {networks}, with {changes}. {_summary(study, result)}"
    yield ""
    has_printed = any(row.printed is not None for row in result.rows.values())
    columns = [
        "row",
        "MAP@R",
        "Recall@1",
        "difference",
        "verdict",
        *([_printed(item)] if has_printed else []),
    ]
    yield f"| {' | '.join(columns)} |"
    yield f"| {' | '.join(['---'] * len(columns))} |"
    floors = [floor for floor in results.floors if floor.network in study.networks]
    means = [sum(getattr(floor, metric) for floor in floors) / len(floors) for metric in METRICS]
    cells = [FLOOR, *(f"{100 * mean:.2f}" for mean in means), *[""] * (len(columns) - 3)]
    yield f"| {' | '.join(cells)} |"
    for row in result.rows.values():
        difference = change(row.effect) if row.effect else "reference"
        cells = [row.label, points(row.map_at_r), points(row.recall_at_1), difference, row.verdict or ""]
        cells += [f"{row.printed:g}" if row.printed is not None else ""] if has_printed else []
        yield f"| {' | '.join(cells)} |"


def _printed(item: Catalogued) -> str:
    """`printed (SOP, Recall@1)`: data set and metric of the numbers of the paper."""
    return f"printed ({printed_dataset(item)}, {name_of(item.study.metric)})"


def _summary(study: FrozenStudy, result: StudyResult) -> str:
    rows = list(result.rows.values())
    best = max(rows, key=lambda row: row.map_at_r.mean)
    reference = result.rows[study.reference].label
    verdicts = [row.verdict for row in rows if row.effect]
    text = f"Highest MAP@R: {best.label}. "
    if None in verdicts:
        text += "Recorded without class means: no verdict by the rule, intervals of resampled classes."
    else:
        text += (
            f"Better than {reference}: {verdicts.count('better')} of {len(verdicts)} other rows, worse: "
            f"{verdicts.count('worse')}, below the floor: {verdicts.count('below the floor')}."
        )
    if result.rank_correlation is not None:
        text += f" Rank correlation of our and the printed order (Spearman): {result.rank_correlation:+.2f}."
    return text


if __name__ == "__main__":
    sys.stdout.write(markdown(load_studies()))
