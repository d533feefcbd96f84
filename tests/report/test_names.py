"""Short names: unique labels of classes, complete words, and a maximal length."""

import pytest

from unseen.report.names import breaking, labels_of, shorten

FRUIT = [
    "Obst und Gemüse/Äpfel/Granny Smith",
    "Obst und Gemüse/Äpfel/Royal Gala",
    "Obst und Gemüse/Birnen/Anjou",
    "Einzelstück",
]


def test_labels_are_the_shortest_unique_ends() -> None:
    assert labels_of(FRUIT) == ["Granny Smith", "Royal Gala", "Anjou", "Einzelstück"]
    assert labels_of(["shoes/black", "shirts/black", "shirts/red"]) == [
        "shoes/black",
        "shirts/black",
        "shirts/red",
    ], "all labels have one depth"
    assert labels_of(["all/shoes/black", "all/shirts/black"]) == ["shoes/black", "shirts/black"]
    assert labels_of(["001.Black_footed_Albatross", "a"]) == ["001.Black_footed_Albatross", "a"]
    assert labels_of(["a", "a"]) == ["a", "a"]
    assert labels_of([]) == []


@pytest.mark.parametrize("limit", [8, 16, 24, 32, 44])
@pytest.mark.parametrize(
    "name",
    [
        *FRUIT,
        "Donaudampfschifffahrtsgesellschaftskapitän",
        "CUB_200_2011/images/001.Black_footed_Albatross/1.jpg",
        "a b c d e f g h i j",
    ],
)
def test_shortened_names_fit_and_keep_both_ends(name: str, limit: int) -> None:
    shortened = shorten(name, limit)
    assert len(shortened) <= limit
    if len(name) <= limit:
        assert shortened == name
        return
    first, last = shortened.split("…")
    assert name.startswith(first)
    assert name.endswith(last)
    assert last


def test_words_are_complete_if_they_fit() -> None:
    assert shorten("Säfte/God Morgon Orange Red Grapefruit Juice", 32) == "Säfte/God…Red Grapefruit Juice"
    assert shorten("Obst und Gemüse/Galia Melon/Foto 25.jpg", 31) == "Obst und…Melon/Foto 25.jpg"
    assert shorten("Obst und Gemüse/Galia Melon/Foto 25.jpg", 24) == "Obst…Foto 25.jpg"
    assert shorten("Donaudampfschifffahrtsgesellschaft", 16) == "Donau…sellschaft", (
        "the name has a single word"
    )


def test_lines_break_after_slashes_and_underscores_and_markup_is_escaped() -> None:
    assert breaking("a b/c_d.e-f<i>") == "a b/<wbr>c_<wbr>d.<wbr>e-f&lt;i&gt;"
