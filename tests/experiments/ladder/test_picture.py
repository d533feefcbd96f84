"""The picture of a ladder: points, intervals and the chosen rung."""

import xml.etree.ElementTree as ElementTree
from typing import Any

from unseen.experiments.ladder.picture import COLOURS, Panel, picture

SVG = "{http://www.w3.org/2000/svg}"


def rung(name: str, seconds: float, value: float, half: float = 0.03) -> dict[str, Any]:
    test = {"map_at_r": value, "map_at_r_low": value - half, "map_at_r_high": value + half}
    return {"name": name, "size": 128, "seconds": seconds, "test": test}


def test_draws_each_rung_with_its_interval_and_fills_the_chosen_one() -> None:
    rungs = [rung("frozen", 10.0, 0.25), rung("linear", 30.0, 0.31), rung("adapt", 300.0, 0.42)]
    root = ElementTree.fromstring(picture([Panel("lite0 <random>", rungs, rungs[2])] * 4))
    assert root.get("viewBox") == "0 0 900 460"
    assert [each.text for each in root.iter(f"{SVG}text")].count("lite0 <random>") == 4
    first = root.find(f"{SVG}g")
    assert first is not None
    circles = first.findall(f"{SVG}circle")
    assert [each.get("fill") for each in circles] == ["#ffffff", "#ffffff", COLOURS["adapt"]]
    x = [float(each.get("cx", "")) for each in circles]
    assert x[0] < x[1] < x[2]
    assert (x[2] - x[1]) / (x[1] - x[0]) > 2, "logarithmic: a factor of 10 after one of 3"
    heights = [float(each.get("cy", "")) for each in circles]
    assert (heights[0] - heights[1]) * 11 > (heights[1] - heights[2]) * 5.9, "proportional to MAP@R"
    intervals = [each.get("d", "") for each in first.findall(f"{SVG}path") if each.get("stroke-width")]
    top, bottom = intervals[0].split("V")[1], intervals[0].split()[1].split("V")[0]
    assert float(top) < heights[0] < float(bottom)
    labels = {each.text: each.get("font-weight") for each in first.findall(f"{SVG}text")}
    assert labels["adapt"] == "bold"
    assert labels["frozen 128"] is None


def test_draws_rungs_of_equal_accuracy() -> None:
    rungs = [rung("frozen", 1.0, 1.0, 0.0), rung("linear", 3.0, 1.0, 0.0)]
    root = ElementTree.fromstring(picture([Panel("easy", rungs, rungs[0])]))
    assert len({each.get("cy") for each in root.iter(f"{SVG}circle")}) == 1


def test_times_below_a_second_are_drawn_at_one_second() -> None:
    rungs = [rung("frozen", 0.0, 0.25), rung("linear", 0.5, 0.31)]
    root = ElementTree.fromstring(picture([Panel("cached", rungs, rungs[0])]))
    assert len({each.get("cx") for each in root.iter(f"{SVG}circle")}) == 1
