"""The report: one HTML page with style, figures and pictures, which loads nothing. Equal data give equal
bytes.

To add a section, write a module and a template in pipeline/report/sections/ and name the module in CARDS.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from jinja2 import Environment, Template
from markupsafe import Markup

from unseen.config.stages import OutsideSection
from unseen.report import html, names, words
from unseen.report.dataset import DataSet, GallerySize
from unseen.report.pictures import Pictures
from unseen.report.report_data import ReportData
from unseen.report.sections import (
    attributes,
    classes,
    comparison,
    cost,
    data,
    embedding_map,
    ensembles,
    gallery,
    geometry,
    gradient_noise,
    key_numbers,
    losses,
    own_photos,
    positions,
    provenance,
    published,
    results,
    seeds,
    side_by_side,
    similarity,
    spectrum,
    studies,
    sweeps,
    training,
    verdict,
)
from unseen.runtime.progress import track


@runtime_checkable
class Section(Protocol):
    """A module of pipeline/report/sections. Its template has the same name."""

    __name__: str

    def content(self, dataset: DataSet) -> Mapping[str, Any] | None:
        """The variables of the template; None: the section is omitted."""
        ...


class OwnSection:
    """A section of a user."""

    def __init__(self, settings: OutsideSection) -> None:
        self._module, self._settings = import_module(settings.module), settings
        self.__name__ = settings.module

    def content(self, dataset: DataSet) -> Mapping[str, Any] | None:
        fields = self._settings.model_dump(exclude={"module"})
        variables: Mapping[str, Any] | None = self._module.content(dataset, **fields)
        return variables

    def template(self, environment: Environment) -> Template:
        file = Path(str(self._module.__file__)).with_suffix(".html")
        return environment.from_string(file.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Card:
    """A framed part of the page with an entry in the navigation. It is omitted without sections."""

    id: str
    entry: str
    heading: str
    sections: tuple[Section, ...]


CARDS = (  # of each data set, in the order of the page
    Card("answers", "Answers", "Your photos", (own_photos,)),
    Card("studies", "Studies", "Studies", (studies,)),
    Card(
        "results",
        "Results",
        "Results on unseen classes",
        (results, seeds, comparison, ensembles, cost, classes),
    ),
    Card("published", "Published", "Published numbers", (published,)),
    Card("training", "Training", "Training", (training, losses)),
    Card("sweep", "Sweeps", "Sweeps", (sweeps,)),
    Card(
        "geometry",
        "Geometry",
        "Geometry of the embedding",
        (geometry, embedding_map, spectrum, similarity, attributes, gradient_noise),
    ),
    Card("positions", "Positions", "Weights of image positions", (positions,)),
    Card("gallery", "Galleries", "Galleries", (gallery, side_by_side)),
    Card("data", "Data", "Data", (data,)),
    Card("provenance", "Provenance", "Provenance", (provenance,)),
)


class Page(NamedTuple):
    """The page, and the verdict of each data set (sections/verdict.py) as plain text."""

    html: str
    verdicts: dict[str, str]


def cards_with(own: Iterable[OutsideSection]) -> tuple[Card, ...]:
    """CARDS with the sections of a user: in the card whose id they state, else in a card of their own."""
    cards = {card.id: card for card in CARDS}
    for number, settings in enumerate(own, start=1):
        heading = settings.CARD
        place = next((id for id, card in cards.items() if heading in (id, card.heading)), f"own-{number}")
        card = cards.get(place, Card(place, heading, heading, ()))
        cards[place] = replace(card, sections=(*card.sections, OwnSection(settings)))
    return tuple(cards.values())


def build(
    report_data: ReportData,
    title: str,
    queries: int,
    neighbours: int,
    thumbnail: int,
    own: Iterable[OutsideSection] = (),
) -> Page:
    """The page and its verdicts.

    A run whose methods are the rows of one study has the labels of the rows as names of the methods.
    Galleries have `queries` per method with `neighbours` matches each; pictures are at most `thumbnail`
    pixels wide and high. own: the sections of a user.
    """
    cards = cards_with(own)
    pictures = Pictures()
    if len(report_data.studies) == 1:
        (study,) = report_data.studies
        if {row.method for row in study.rows} == {*report_data.methods}:
            report_data = report_data.under_labels(study)
    environment = template_environment(pictures)
    size = GallerySize(queries, neighbours, thumbnail)
    sets = [
        _render(environment, DataSet(report_data, name, f"set-{number}", size), cards)
        for number, name in enumerate(track(report_data.datasets, "report", "data sets"))
    ]
    axes = ((report_data.methods, "method"), (report_data.datasets, "data set"), (report_data.seeds, "seed"))
    text = environment.get_template("page.html").render(
        title=title,
        axes=" · ".join(words.counted(len(axis), noun) for axis, noun in axes),
        css=html.style() + pictures.style(),
        sets=sets,
        several_seeds=len(report_data.seeds) > 1,
        versions=" · ".join(f"{name} {version}" for name, version in provenance.versions().items()),
    )
    return Page(text, {values["name"]: values["verdict"].striptags() for values in sets})


def template_environment(pictures: Pictures) -> Environment:
    """The templates of the sections, whose pictures are added to `pictures`."""
    environment = html.environment(html.FOLDER / "sections")
    environment.keep_trailing_newline = True
    environment.filters |= {
        "percent": words.percent,
        "short": words.short,
        "shorten": names.shorten,
        "breaking": names.breaking,
        "picture_class": pictures.name,
    }
    return environment


def rendered(section: Section, dataset: DataSet, environment: Environment) -> Markup:
    """A section of a data set as HTML; empty if it is omitted. environment: of `template_environment`."""
    variables = section.content(dataset)
    if variables is None:
        return Markup("")
    if isinstance(section, OwnSection):
        template = section.template(environment)
    else:
        template = environment.get_template(f"{section.__name__.rpartition('.')[2]}.html")
    return Markup(template.render(dataset=dataset, **variables))


def _render(environment: Environment, dataset: DataSet, cards: tuple[Card, ...]) -> dict[str, Any]:
    """The variables of a data set in page.html: its sections as HTML."""
    bodies = [
        (card, Markup("").join(rendered(section, dataset, environment) for section in card.sections))
        for card in cards
    ]
    return {
        "id": dataset.anchor,
        "name": dataset.name,
        "verdict": rendered(verdict, dataset, environment),
        "key_numbers": rendered(key_numbers, dataset, environment),
        "cards": [{"card": card, "body": body} for card, body in bodies if body],
    }
