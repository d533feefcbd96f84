"""The commands `unseen index` and `unseen find`."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np

from pipeline.catalog.build import build
from pipeline.catalog.catalog import Answer, Catalog
from pipeline.catalog.duplicates import Group, duplicates
from pipeline.catalog.embedder import Precision, encoded
from pipeline.catalog.measure import description, measure
from pipeline.catalog.results_page import duplicates_page, page
from pipeline.data.heif import readable
from pipeline.evaluation.unknown import Threshold, UncalibratedError
from pipeline.index.kinds import KINDS
from pipeline.ingest.completeness import require_complete
from pipeline.ingest.files.archive import is_hidden
from pipeline.ingest.sources.folder import SUFFIXES, Directory
from pipeline.methods.pretrained import Network
from pipeline.runtime.errors import UserError
from pipeline.runtime.files import atomic_file, regular, require_replaceable
from pipeline.runtime.names import printable


def write_catalog(
    photos: Path,
    output: Path,
    model: Path | Network | None,
    kind: str | None,
    labels: str | None,
    skip_damaged: bool,
    duplicates_html: Path | None = None,
    workers: int | None = None,
    precision: Precision | Literal["auto"] | None = None,
) -> None:
    """Builds or updates a catalog and prints its size, and with `duplicates_html` the groups of
    near-duplicates, which it also writes to this page. Raises UserError as `build` does.
    """
    if duplicates_html is not None:
        require_replaceable(duplicates_html)
    setting = KINDS[kind]() if kind else None
    catalog = build(
        photos, output, model, skip_damaged, setting, labels, workers=workers, precision=precision
    )
    excluded = len(catalog.about["left_out"])
    parts = [f"{len(catalog):,} pictures"]
    if labelled := len(catalog) - catalog.labels.count(None):
        parts.append(f"{labelled:,} with one of {len({*catalog.labels} - {None}):,} labels")
    if excluded:
        parts.append(f"{excluded:,} excluded")
    sys.stdout.write(f"{output}: {', '.join(parts)}\n")
    if duplicates_html is not None:
        groups, unread = duplicates(catalog)
        with atomic_file(duplicates_html) as aside:
            aside.write_text(duplicates_page(catalog, groups), encoding="utf-8")
        sys.stdout.write("".join(f"{line}\n" for line in _duplicate_lines(groups, unread)))


def _duplicate_lines(groups: Sequence[Group], unread: Sequence[str]) -> Iterator[str]:
    count = sum(len(group.pictures) for group in groups)
    yield f"{len(groups):,} groups of near-duplicates with {count:,} pictures"
    for group in groups:
        names = ", ".join(printable(copy.path) for copy in group.pictures)
        yield f"  {names}" + ("  (different labels)" if group.contradictory else "")
    if unread:
        yield f"{len(unread):,} files are missing and could not be compared, first {printable(unread[0])}"


def measurement(photos: Path, network: Network, labels: str) -> str:
    """The accuracy of a network with each candidate of its statistics as a table, and the command with the
    best. Raises UserError as `measure` does.
    """
    results = measure(photos, network, labels)
    options = [description(result.network) for result in results]
    width = max(map(len, options))
    metrics = results[0].metrics
    lines = [
        f"{metrics['queries']:,} photos of {metrics['classes']:,} classes, 95% intervals over classes",
        "",
    ]
    lines.append(f"{'options':<{width}}  {'Recall@1':>8}  {'MAP@R':>5}")
    for option, result in zip(options, results, strict=True):
        recall, precision, low, high = (
            100 * float(result.metrics[name])
            for name in ("recall_at_1", "map_at_r", "map_at_r_low", "map_at_r_high")
        )
        lines.append(f"{option:<{width}}  {recall:8.1f}  {precision:5.1f} ({low:.1f} to {high:.1f})")
    weights = f" --weights {network.weights}" if network.weights else ""
    lines += ["", f"unseen index PHOTOS CATALOG --network {network.name}{weights} {options[0]}"]
    return "".join(f"{line}\n" for line in lines)


def queries(photos: Iterable[Path], lists: Path | None) -> list[Path]:
    """The pictures to search for: files, all pictures below folders, and the paths in a text file, one a
    line; `-` is the standard input.

    Raises UserError if there is none, or if the list cannot be read.
    """
    paths = [path for photo in photos for path in (_below(photo) if photo.is_dir() else [photo])]
    if lists is not None:
        try:
            text = sys.stdin.read() if str(lists) == "-" else regular(lists).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(
                f"{lists} cannot be read: {error}.", "Write one path a line, in UTF-8."
            ) from error
        paths += [Path(line) for line in text.splitlines() if line.strip()]
    if not paths:
        raise UserError("There is no photo to search for.", "Name photos, folders of photos, or --list FILE.")
    return paths


def find_photos(
    directory: Path,
    photos: Sequence[Path],
    k: int,
    html: Path | None,
    share: float | None,
    as_json: bool,
    skip_damaged: bool = False,
) -> str:
    """The k nearest pictures of each photo as text or JSON; also writes them to a page. `share`: the largest
    rate of false matches; if it is not calibrated for the model, the output states this and answers no photo
    with `unknown`. `skip_damaged`: photos that cannot be read are listed on the standard error. Raises
    UserError as `Catalog`, its `threshold` and its `find` do otherwise, and if no photo can be read."""
    if html is not None:
        require_replaceable(html)
    catalog = Catalog(directory)
    if skip_damaged:
        photos = _undamaged(photos)
    threshold, problem = None, None
    if share is not None:
        try:
            threshold = catalog.threshold(share)
        except UncalibratedError as error:
            problem = error
    statement = f"{problem.what} {problem.remedy}" if problem else threshold and threshold.sentence()
    answers = catalog.identify(photos, k, threshold)
    if html is not None:
        text = page(catalog, photos, answers, statement)
        with atomic_file(html) as aside:
            aside.write_text(text, encoding="utf-8")
    if as_json:
        return _json(catalog, photos, answers, threshold, problem)
    return "".join(f"{line}\n" for line in _lines(catalog, photos, answers, statement))


def _undamaged(photos: Sequence[Path]) -> list[Path]:
    """The photos that can be read; the standard error lists the others. Raises UserError if there is none."""
    undamaged = []
    for photo in photos:
        try:
            require_complete(np.frombuffer(readable(encoded(photo)), np.uint8))
        except UserError as error:
            sys.stderr.write(f"excluded: {error.what}\n")
        except ValueError as error:
            sys.stderr.write(f"excluded: {printable(str(photo))} cannot be read as a picture: {error}.\n")
        else:
            undamaged.append(photo)
    if not undamaged:
        raise UserError("No photo can be read.", "Convert them to JPEG or PNG.")
    return undamaged


def _below(folder: Path) -> Iterator[Path]:
    for name in Directory(folder).names():
        if PurePosixPath(name).suffix.lower() in SUFFIXES and not is_hidden(name):
            yield folder / name


def _json(
    catalog: Catalog,
    photos: Sequence[Path],
    answers: Sequence[Answer],
    threshold: Threshold | None,
    problem: UncalibratedError | None,
) -> str:
    content = {
        "catalog": str(catalog.directory),
        "photos": str(catalog.photos),
        "threshold": None if threshold is None else threshold._asdict(),
        "not_calibrated": None if problem is None else {"reason": problem.what, "remedy": problem.remedy},
        "queries": [
            {
                "query": str(photo),
                "unknown": answer.unknown,
                "products": [product._asdict() for product in answer.products],
                "matches": [match._asdict() for match in answer.matches],
            }
            for photo, answer in zip(photos, answers, strict=True)
        ],
    }
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    return text.encode(errors="backslashreplace").decode()  # a byte of a name that is not UTF-8: \\udcff


def _lines(
    catalog: Catalog, photos: Sequence[Path], answers: Sequence[Answer], statement: str | None
) -> Iterator[str]:
    if statement is not None:
        yield statement
    for photo, answer in zip(photos, answers, strict=True):
        if answer.unknown:
            yield f"{printable(str(photo))}: unknown"
            continue
        yield printable(str(photo))
        width = max((len(printable(product.label)) for product in answer.products), default=0)
        for product in answer.products:
            votes = f"{product.votes} match{'es' * (product.votes > 1)}"
            yield f"      {product.similarity:.3f}  {printable(product.label):<{width}}  {votes}"
        for rank, match in enumerate(answer.matches, 1):
            yield f"{rank:4d}  {match.similarity:.3f}  {printable(str(catalog.photos / match.path))}"
