"""The numbers of a metrics file."""

from unseen.evaluation.headline import headline, in_percent, interval_note

NUMBERS = ("recall_at_1", "recall_at_2", "map_at_r", "r_precision", "class_mean_map_at_r", "nmi")
NETWORKS = ("", "last_", "untrained_", "features_", "reduced_", "approximate_", "best_on_test_")


def test_keeps_the_numbers_of_the_selected_network_that_people_compare() -> None:
    metrics: dict[str, float | int | str] = {
        f"{network}{name}{end}": 0.5
        for network in NETWORKS
        for name in NUMBERS
        for end in ("", "_low", "_high")
    }
    counts = {"queries": 9, "classes": 3, "protocol": "abc"}
    of_index = {"approximate_protocol": "def", "approximate_sample": 7}
    assert headline(metrics | counts | of_index).keys() == {
        *(f"{name}{end}" for name in ("recall_at_1", "map_at_r") for end in ("", "_low", "_high")),
        "features_map_at_r",
        *counts,
    }


def test_keeps_the_levels_of_landmark_benchmarks() -> None:
    names = [f"roxford5k_{level}_{metric}" for level in ("easy", "medium") for metric in ("map", "mp_at_1")]
    metrics: dict[str, float | int | str] = {
        f"{network}{name}": 0.5 for network in NETWORKS for name in names
    }
    metrics |= {"roxford5k_medium_map_low": 0.4, "roxford5k_easy_queries": 3}
    assert headline(metrics).keys() == {
        "roxford5k_easy_map",
        "roxford5k_medium_map",
        "roxford5k_medium_map_low",
        "roxford5k_easy_queries",
        "features_roxford5k_medium_map",
    }


def test_the_note_states_whether_there_are_intervals() -> None:
    few: dict[str, float | int | str] = {"map_at_r": 0.5}
    assert (in_percent(few, "map_at_r"), interval_note(few)) == ("50.0", "too few classes for intervals")
    enough = few | {"map_at_r_low": 0.4, "map_at_r_high": 0.6}
    assert in_percent(enough, "map_at_r") == "50.0 (40.0 to 60.0)"
    assert interval_note(enough) == "95% intervals over classes"
