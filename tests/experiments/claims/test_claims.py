"""The table of claims, a run on drawn photos, and the page of the committed results."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.experiments.claims.conftest import TINY
from tools.docs.claims import markdown, state_of
from unseen.cli import main as cli
from unseen.evaluation.record import Record, Run
from unseen.evaluation.statistics.better import compare
from unseen.evaluation.statistics.table import of_records
from unseen.experiments.claims.claim import Claim, claims
from unseen.experiments.claims.results import Comparison, load, read
from unseen.experiments.claims.run import judged
from unseen.experiments.claims.whole_photos import COMMITTED as WHOLE_PHOTOS
from unseen.experiments.claims.whole_photos import WholeResults
from unseen.experiments.experiment import grid
from unseen.frozen.head import head
from unseen.frozen.head_runner import HeadRunner
from unseen.runtime.errors import UserError

ROOT = Path(__file__).resolve().parents[3]


def test_every_arm_is_a_valid_recipe_and_used() -> None:
    content = claims()
    used = {arm for claim in content.claims.values() for arm in (claim.first, claim.second)}
    assert used == set(content.arms)
    assert len(content.claims) >= 20
    for name in content.arms:
        method, changes = content.arm(name)
        head(method, changes=changes).recipe()
    assert {claim.paper for claim in content.claims.values()} == {"crt", "multihead", "gsp", "irt"}


@pytest.mark.slow
def test_computes_claims_and_continues(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = tiny / "groups.csv"
    groups.write_text("label,group\n" + "".join(f"product {n:02d},{n // 2}\n" for n in range(20)))
    options = ["--photos", str(tiny / "photos"), "--output", str(tiny / "out"), "--seeds", "2"]
    options += ["--weights", f"small={tiny / 'w.safetensors'}", "--groups", str(groups)]
    cli.main(["claims", *options])
    printed = capsys.readouterr()
    assert "no weights of other" in printed.err
    results = load(tiny / "out/claims.json")
    assert set(results.claims) == {"pooling", "decay"}
    for of_place in (results.claims["pooling"].cells, results.floors):
        assert [(each.network, each.split) for each in of_place] == [("small", "random"), ("small", "groups")]
    for result in results.claims.values():
        assert result.low <= result.difference <= result.high
        for cell in result.cells:
            assert cell.difference == pytest.approx(cell.second - cell.first, abs=2e-5)
        mean = sum(cell.difference for cell in result.cells) / len(result.cells)
        assert result.difference == pytest.approx(mean, abs=2e-5)
        assert result.verdict in printed.out
        assert result.p_value is not None
    assert results.claims["pooling"].verdict == "too few classes to decide"
    text = (tiny / "out/claims.json").read_text()
    assert str(tiny) not in text
    for path in (tiny / "out/records").iterdir():
        assert str(tiny) not in path.read_text()

    monkeypatch.setattr(HeadRunner, "_record", None)  # every record exists
    cli.main(["claims", "pooling", *options])
    again = load(tiny / "out/claims.json")
    in_family, alone = results.claims["pooling"], again.claims["pooling"]
    assert again.claims.keys() == {"pooling"}
    assert alone.p_value <= in_family.p_value, "Holm's method adjusts it in the family of the run"
    assert alone.model_copy(update={"p_value": in_family.p_value}) == in_family
    assert again.floors == results.floors


@pytest.mark.slow
def test_refuses_unknown_names_and_networks_without_weights(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--photos", str(tiny / "photos"), "--output", str(tiny / "out")]
    for arguments, message in (
        (["poling", *options], "no claim poling"),
        (["elsewhere", *options], "weights of no network"),
        ([*options, "--weights", "big=w.safetensors"], "no claim has a network big"),
        ([*options, "--weights", "small"], "not a NETWORK=FILE"),
        (["pooling"], "--photos is missing"),
    ):
        with pytest.raises(SystemExit):
            cli.main(["claims", *arguments])
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("second: max, networks: [other]", "second: maximum, networks: [other]", "no arm maximum"),
        ("networks: [other]", "networks: [else]", "unknown network else"),
        ("expects: less", "expects: equal", "`margin` is required with"),
        ("paper: gsp", "paper: gps", "paper"),
    ],
)
def test_refuses_a_wrong_claim(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(TINY.replace(old, new))
    with pytest.raises(UserError, match=message):
        claims(path)


def test_the_page_has_the_committed_results() -> None:
    assert (ROOT / "docs/claims.md").read_text(encoding="utf-8") == markdown(
        load(), read(WHOLE_PHOTOS, WholeResults)
    )


@pytest.mark.parametrize("text", [None, "{", "{}"])
def test_a_file_that_is_no_result_is_an_error(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "claims.json").write_text(text)
    with pytest.raises(UserError, match=r"claims\.json is no result of `unseen claims`: ."):
        load(tmp_path / "claims.json")


def test_a_metric_without_classes_has_no_interval_with_one_training() -> None:
    page = (ROOT / "docs/claims.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if re.match(r"\| crt-(density|decay) \| x\d+, x\d+ \|", line)]
    assert [row.count("[one training]") for row in rows] == [3, 3]


def test_the_page_counts_the_arms_above_the_floor() -> None:
    results, on_photos = load(), read(WHOLE_PHOTOS, WholeResults)
    floor = results.floors[0]
    low, high = (floor.model_copy(update={"map_at_r": value}) for value in (0.0, 1.0))
    for changed, count in ((low, "all"), (high, "none")):
        page = markdown(results.model_copy(update={"floors": [changed]}), on_photos)
        row = next(
            line for line in page.splitlines() if line.startswith(f"| {floor.network} | {floor.split} |")
        )
        above, _, arms = row.split(" | ")[3].partition(" of ")
        assert int(above) == (int(arms) if count == "all" else 0)
        assert int(arms) > 10


def test_more_steps_do_not_bring_crt_closer_to_ms() -> None:
    """The page states it."""
    effects = {
        name: [cell.difference for cell in load().claims[name].cells if cell.network == "vit-tiny"]
        for name in ("crt-over-ms", "crt-over-ms-long")
    }
    assert len(effects["crt-over-ms"]) == 2
    for short, long in zip(*effects.values(), strict=True):
        assert long < short < 0


def test_a_result_of_another_definition_is_not_run() -> None:
    name, *others = claims().claims
    definition = claims().definition(name)
    result = Comparison(
        definition=definition,
        difference=0.0314,
        low=0.01,
        high=0.05,
        p_value=0.02,
        verdict="confirmed",
        cells=[],
    )
    results = load().model_copy(update={"claims": {name: result}})
    assert state_of(name, results) == "confirmed"
    on_photos = read(WHOLE_PHOTOS, WholeResults)
    page = markdown(results, on_photos)
    counts = f"Frozen networks: 1 confirmed, {len(others)} not run."
    assert counts in " ".join(page.split())
    assert "+3.14 [+1.00, +5.00]" in page
    few = results.model_copy(update={"claims": {name: result.model_copy(update={"low": None, "high": None})}})
    assert "+3.14 [too few classes]" in markdown(few, on_photos)
    changed = results.model_copy(update={"claims": {name: result.model_copy(update={"definition": "0"})}})
    assert state_of(name, changed) == "not run"
    assert "+3.14" not in markdown(changed, on_photos)


def drawn() -> dict[Run, Record]:
    """The floor and rows at two places with three seeds: 20 classes have the value of the row, with noise."""
    random, result = np.random.default_rng(0), {}
    names = [f"c{number}" for number in range(20)]
    of_class = random.normal(0.5, 0.1, 20)
    for row, value in {"low": 0.1, "lower": 0.07, "high": 0.2, "like high": 0.2, "floor": 0.15}.items():
        for run in grid([row], ["net/random", "net/groups"], [0] if row == "floor" else [0, 1, 2]):
            means = dict(zip(names, (of_class + value + random.normal(0, 1e-3, 20)).tolist(), strict=True))
            result[run] = Record(
                settings={},
                images=dict.fromkeys(names, 4),
                classes={"map_at_r": means},
                training={"spectral_decay": value + random.normal(0, 1e-3)},
                cpu_seconds=0,
            )
    return result


def test_what_the_rule_says_about_claims_which_are_one_family() -> None:
    cases = {
        "confirmed": ("low", "high", "more"),
        "refuted": ("low", "high", "less"),
        "less": ("high", "low", "less"),
        "equal": ("high", "like high", "more"),
        "as equal": ("high", "like high", "equal"),
        "not equal": ("low", "high", "equal"),
        "below": ("low", "lower", "less"),
        "training": ("low", "high", "more"),
    }
    about = {"paper": "gsp", "item": "table 2", "statement": "x", "networks": ["net"]}
    made = {
        name: Claim.parse(
            about
            | {"first": first, "second": second, "expects": expects}
            | ({"margin": 0.01} if expects == "equal" else {})
            | ({"metric": "spectral_decay"} if name == "training" else {})
        )
        for name, (first, second, expects) in cases.items()
    }
    places = ["net/random", "net/groups"]
    of_claims = claims().model_copy(update={"claims": made})
    results = judged(of_claims, dict.fromkeys(made, "0"), dict.fromkeys(made, places), drawn())
    assert [result.verdict for result in results.values()] == [
        *(
            "confirmed",
            "refuted",
            "confirmed",
            "equal",
            "confirmed",
            "refuted",
            "below the floor",
            "confirmed",
        )
    ]
    alone = judged(of_claims, {"confirmed": "0"}, {"confirmed": places}, drawn())["confirmed"]
    together = results["confirmed"]
    assert alone.p_value is not None
    assert together.p_value is not None
    assert alone.p_value < together.p_value <= 8 * alone.p_value
    (compared,) = compare(of_records(drawn(), ("low", "high"), "map_at_r"), [(0, 1)])
    assert (together.difference, together.low, together.high) == tuple(round(x, 5) for x in compared[2:5])
    (at_random,) = compare(of_records(drawn(), ("low", "high"), "map_at_r", ["net/random"]), [(0, 1)])
    cell = together.cells[0]
    assert (cell.network, cell.split) == ("net", "random")
    assert (cell.first, cell.second, cell.difference, cell.low, cell.high) == tuple(
        round(x, 5) for x in at_random[:5]
    )


def test_lists_every_claim(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["claims", "--list"])
    printed = capsys.readouterr().out
    assert all(name in printed for name in claims().claims)
