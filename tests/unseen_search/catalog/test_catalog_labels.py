"""Labels of the pictures of a catalog, and answers by product."""

from pathlib import Path

import numpy as np
import pytest

from tests.photos import COUNT, picture, save_products
from unseen.evaluation.decision import (
    MEAN,
    NEAREST,
    VOTES,
    VOTING,
    WHITENED,
    WITH_MARGIN,
    Choice,
    left_out,
    means,
)
from unseen.evaluation.unknown import calibrate
from unseen.runtime.errors import UserError
from unseen_search.catalog import Catalog, build
from unseen_search.catalog.answers import Match, answers_of
from unseen_search.indexing import write_catalog


@pytest.mark.slow
def test_labels_are_those_of_folders_of_a_csv_or_of_the_existing_catalog(
    model: Path, photos: Path, tmp_path: Path, embedded: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    catalog = tmp_path / "catalog"
    (photos / "top.jpg").write_bytes(picture(60))
    assert set(build(photos, catalog, model, processes=1).labels) == {None}
    by_folder = build(photos, catalog, labels="folders", processes=1)
    expected = [None if path == "top.jpg" else str(Path(path).parent) for path in by_folder.paths]
    assert by_folder.labels == expected
    assert build(photos, catalog, processes=1).labels == expected
    table = tmp_path / "labels.csv"
    lines = ["label,path", " milk ,top.jpg", "bread,shelf 0/scho\u0308n 0.jpg", "jam,nowhere.jpg", ""]
    table.write_text("\ufeff" + "\n".join(lines), encoding="utf-8")
    by_csv = build(photos, catalog, labels=str(table), processes=1)
    of_path = dict(zip(by_csv.paths, by_csv.labels, strict=True))
    assert {path: label for path, label in of_path.items() if label} == {
        "top.jpg": "milk",
        "shelf 0/schön 0.jpg": "bread",
    }
    assert "has labels of 1 pictures that do not exist" in capsys.readouterr().err
    table.write_text("path,label\ntop.jpg,cream\n")
    assert "cream" in build(photos, catalog, processes=1).labels, "the same CSV is read again"
    assert embedded == [COUNT + 1]
    match = by_csv.find([photos / "top.jpg"], 1)[0][0]
    assert (match.path, match.label) == ("top.jpg", "milk")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("file,label\na.jpg,x\n", "has no column `path`"),
        ("path,label\na.jpg,\n", r":2: no label"),
        ("path,label\na.jpg,x\na.jpg,y\n", r":3: a\.jpg is listed twice"),
        ("path,label,label\na.jpg,x,y\n", "has 2 columns `label`"),
        ("path,label\na.jpg,x\0y\n", r":2: a value contains the character NUL"),
        ("path,label\n", "has no line below the names of the columns"),
        (
            "path,label\nelsewhere/a.jpg,x\n",
            "has a label of no picture; its first path is elsewhere/a.jpg .*, the first picture is",
        ),
        (None, "cannot be read"),
    ],
)
def test_refuses_labels_before_embedding(
    model: Path, photos: Path, tmp_path: Path, embedded: list[int], content: str | None, message: str
) -> None:
    table = tmp_path / "labels.csv"
    if content is not None:
        table.write_text(content)
    with pytest.raises(UserError, match=message):
        build(photos, tmp_path / "catalog", model, labels=str(table), processes=1)
    assert embedded == []


def test_votes_of_the_nearest_pictures_rank_the_products() -> None:
    near = [Match(f"{place}.jpg", 0.9, label) for place, label in enumerate("abb")]
    near += [Match(f"{place}.jpg", 0.8, "a") for place in range(3, VOTES)]
    near += [Match("without.jpg", 0.7), *(Match(f"far {place}.jpg", 0.7, "b") for place in range(VOTES))]
    (answer,) = answers_of(VOTING, [near], 3, None, [], None)
    assert answer.products == [
        ("a", pytest.approx((0.9 + 0.8 * (VOTES - 3)) / VOTES), 1),
        ("b", pytest.approx(1.8 / VOTES), 2),
    ]


def test_the_command_states_the_rules_that_are_better_at_a_threshold(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unseen_search.catalog.write.bounded_rules", lambda *_: {0.05: NEAREST, 0.1: MEAN})
    monkeypatch.setattr("unseen_search.catalog.write.choose", lambda _: [Choice(NEAREST, 1.0, 1.0)])
    photos = save_products(tmp_path / "photos", 4, 2)
    write_catalog(photos, tmp_path / "catalog", model, None, "folders", False, workers=1, onnx=False)
    assert "\nbetter at a threshold for 10% false matches: class mean\n" in (
        printed := capsys.readouterr().out
    )
    assert printed.count("better at a threshold") == 1


@pytest.mark.slow
def test_answers_group_matches_by_product_and_can_be_unknown(model: Path, tmp_path: Path) -> None:
    photos = save_products(tmp_path / "photos")
    catalog = build(photos, tmp_path / "catalog", model, labels="folders", processes=1)
    query = photos / "product 03/2.png"
    (answer,) = catalog.identify([query], 8)
    assert answer.unknown is None
    assert [match.path for match in answer.matches] == [match.path for match in catalog.find([query], 8)[0]]
    assert answer.products[0] == ("product 03", answer.matches[0].similarity, 5)
    assert sum(product.votes for product in answer.products) == 8
    assert [p.score for p in answer.products] == sorted((p.score for p in answer.products), reverse=True)
    threshold = catalog.threshold(0.6)
    assert (threshold.products, threshold.photos) == (12, 60)
    cosines = catalog.vectors().astype(np.float64) @ catalog.vectors().T
    labels = np.array(catalog.labels)
    cosines[labels[:, None] == labels] = -1
    assert (cosines.max(axis=1) >= threshold.score - 1e-6).mean() == pytest.approx(threshold.false)
    assert threshold.false < threshold.false_limit <= 0.6
    known, unknown = catalog.identify([query, picture(99)], 8, threshold)
    assert known.unknown is False
    assert [match.path for match in known.matches] == [match.path for match in answer.matches]
    strict = threshold._replace(score=1.01)
    candidates = catalog.identify([query, picture(99)], 8, strict)
    assert candidates == [known._replace(unknown=True), unknown._replace(unknown=True)]
    assert candidates[1].products
    assert candidates[1].matches
    assert unknown.unknown is (catalog.find([picture(99)], 1)[0][0].similarity < threshold.score)


@pytest.mark.slow
def test_a_catalog_of_class_means_scores_by_them_and_an_earlier_one_by_the_nearest_picture(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos, names = save_products(tmp_path / "photos"), [f"product {number:02d}" for number in range(12)]
    choice = Choice(WHITENED + WITH_MARGIN, 1.0, 1.0)
    monkeypatch.setattr("unseen_search.catalog.write.choose", lambda _: [choice])
    catalog = build(photos, tmp_path / "catalog", model, labels="folders", processes=1)
    assert catalog.rule == choice.rule
    labels = np.array([names.index(label) for label in catalog.labels])
    query = [photos / "product 03/2.png", picture(99)]
    expected = means(WHITENED, catalog.vectors(), labels, np.arange(60)).scores(catalog.embedder(query))
    for answer, scores in zip(catalog.identify(query, 60, catalog.threshold(0.6)), expected, strict=True):
        best, second = np.sort(scores)[:-3:-1]
        assert answer.products[0].label == names[scores.argmax()]
        assert answer.products[0].score == pytest.approx(best - second, abs=1e-5)
        for product in answer.products[1:]:
            assert product.score == pytest.approx(scores[names.index(product.label)] - best, abs=1e-5)
        assert len(answer.products) == 12
        assert answer.unknown == (answer.products[0].score < catalog.threshold(0.6).score)
    given = catalog.threshold(0.6, unknown={"other": [picture(number) for number in range(90, 95)]})
    assert given.given == 5


@pytest.mark.slow
def test_a_threshold_has_one_of_the_rules_of_the_catalog(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos, names = save_products(tmp_path / "photos"), [f"product {number:02d}" for number in range(12)]
    of_shares = {0.05: NEAREST, 0.1: MEAN, 0.2: WHITENED}
    monkeypatch.setattr("unseen_search.catalog.write.bounded_rules", lambda *_: of_shares)
    monkeypatch.setattr("unseen_search.catalog.write.choose", lambda _: [Choice(WHITENED, 1.0, 1.0)])
    catalog = build(photos, tmp_path / "catalog", model, labels="folders", processes=1)
    assert catalog.rules == [WHITENED, NEAREST, MEAN]
    assert catalog.rule == WHITENED
    assert catalog.means.keys() == {WHITENED, MEAN}
    labels, rows = np.array([names.index(label) for label in catalog.labels]), np.arange(60)
    expected = left_out(catalog.vectors(), labels, rows, catalog.rules)
    for rule, table in catalog.left_out().items():
        for column, same in zip(table, expected[rule], strict=True):
            np.testing.assert_array_equal(column, same)
    threshold = catalog.threshold(0.6)
    values = {rule: calibrate(table, 12, 0.6, rule=rule) for rule, table in expected.items()}
    assert threshold.right - threshold.wrong == max(each.right - each.wrong for each in values.values())
    query = [picture(99)]
    scores = means(MEAN, catalog.vectors(), labels, rows).scores(catalog.embedder(query))
    (answer,) = catalog.identify(query, 5, threshold._replace(rule=MEAN))
    assert answer.products[0].label == names[scores.argmax()]
    assert answer.products[0].score == pytest.approx(scores.max(), abs=1e-5)
    (answer,) = catalog.identify(query, 5, threshold._replace(rule=NEAREST))
    assert answer.products[0].score == answer.matches[0].similarity


@pytest.mark.slow
def test_refuses_a_threshold_for_too_few_pictures_without_labels_and_for_one_label(
    model: Path, photos: Path, tmp_path: Path
) -> None:
    catalog = tmp_path / "catalog"
    with pytest.raises(UserError, match=r"11 of 11 pictures .* each counts as a product\. 11 products"):
        build(photos, catalog, model, processes=1).threshold(0.1)
    (photos / "top.jpg").write_bytes(picture(60))
    with pytest.raises(UserError, match="1 of 12 pictures"):
        build(photos, catalog, labels="folders", processes=1).threshold(0.1)
    (tmp_path / "labels.csv").write_text(
        "path,label\n" + "".join(f"{path},same\n" for path in Catalog(catalog).paths), encoding="utf-8"
    )
    with pytest.raises(UserError, match=r"All pictures of .* have the label same"):
        build(photos, catalog, labels=str(tmp_path / "labels.csv"), processes=1).threshold(0.1)
