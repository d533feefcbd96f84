"""The command `unseen find`. It imports PyTorch only for a catalog without an ONNX model."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from os.path import exists, samefile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from unseen.data.heif import readable
from unseen.data.ingest.completeness import require_complete
from unseen.data.ingest.sources.folder import SUFFIXES, UNREAD_SUFFIXES, Directory
from unseen.data.labels import lines_of, read
from unseen.evaluation.unknown import Threshold, UncalibratedError
from unseen.frozen.encoded import BATCH, encoded, name_of
from unseen.frozen.pictures import picture_names
from unseen.runtime.errors import UserError
from unseen.runtime.files import atomic_file, require_replaceable
from unseen.runtime.names import printable, say
from unseen_search.catalog.answers import Answer
from unseen_search.catalog.catalog import Catalog
from unseen_search.catalog.thresholds import Asked


def queries(photos: Iterable[Path], lists: Path | None) -> list[Path]:
    """The pictures to search for: files, all pictures below folders, and the paths in a text file, one a
    line; `-` is the standard input. The standard error lists what is omitted in folders, as `unseen index`
    does.

    Raises UserError if there is none, or if the list cannot be read.
    """
    paths = [path for photo in photos for path in (_below(photo) if photo.is_dir() else [photo])]
    if lists is not None:
        remedy = "Write one path a line, in UTF-8."
        content = sys.stdin.buffer.read() if str(lists) == "-" else read(lists, remedy)
        paths += [Path(line) for _, line in lines_of(content, str(lists)) if line.strip()]
    if not paths:
        raise UserError("There is no photo to search for.", "Name photos, folders of photos, or --list FILE.")
    return paths


def find_photos(
    directory: Path,
    photos: Sequence[Path],
    k: int,
    html: Path | None,
    asked: Asked,
    as_json: bool,
    skip_damaged: bool = False,
) -> str:
    """The products and the k nearest pictures of each photo as text or JSON; also writes them to a page.
    If a threshold is asked for and not calibrated for the model, the output states this and answers no photo
    with `unknown`. `skip_damaged`: photos that cannot be read are listed on the standard error and in the
    JSON. Raises UserError as `Catalog`, its `threshold` and its `find` do otherwise, if no photo can be read,
    and for a page that would replace a photo."""
    if html is not None:
        require_page(html, photos)
    catalog = Catalog(directory)
    threshold, problem = None, None
    try:
        threshold = asked.threshold(catalog)
    except UncalibratedError as error:
        problem = error
    statement = f"{problem.what} {problem.remedy}" if problem else threshold and threshold.sentence()
    if skip_damaged:
        results = _identified(catalog, photos, k, threshold)
    else:
        results = Results(list(photos), catalog.identify(photos, k, threshold), {})
    if html is not None:
        from unseen_search.catalog.results_page import page  # imports the templates of the report

        text = page(catalog, results.photos, results.answers, statement)
        with atomic_file(html) as aside:
            aside.write_text(text, encoding="utf-8")
    if as_json:
        return _json(catalog, results, threshold, problem)
    return "".join(f"{line}\n" for line in _lines(catalog, results, statement))


class Results(NamedTuple):
    """What `find` answers."""

    photos: list[Path]
    answers: list[Answer]  # one for each photo
    excluded: dict[Path, str]  # photo that cannot be read -> reason


def _identified(catalog: Catalog, photos: Sequence[Path], k: int, threshold: Threshold | None) -> Results:
    """The answers for the photos that can be read; the standard error lists the others. Raises UserError if
    there is none.

    A batch is decoded once, unless it contains a damaged photo.
    """
    results = Results([], [], {})
    for start in range(0, len(photos), BATCH):
        batch = list(photos[start : start + BATCH])
        try:
            answers = catalog.identify(batch, k, threshold)
        except UserError:
            excluded = _damaged(batch)
            for reason in excluded.values():
                say(f"excluded: {reason}")
            results.excluded.update(excluded)
            batch = [photo for photo in batch if photo not in excluded]
            answers = catalog.identify(batch, k, threshold)
        results.photos.extend(batch)
        results.answers.extend(answers)
    if not results.photos:
        raise UserError("No photo can be read.", "Convert them to JPEG or PNG.")
    return results


def _damaged(photos: Sequence[Path]) -> dict[Path, str]:
    """The photos that cannot be read, each with a sentence."""
    reasons = {}
    for photo in photos:
        try:
            require_complete(np.frombuffer(readable(encoded(photo)), np.uint8))
        except UserError as error:
            reasons[photo] = error.what
        except ValueError as error:
            reasons[photo] = f"{name_of(photo)} cannot be read as a picture: {error}."
    return reasons


def require_page(path: Path, photos: Sequence[Path] = ()) -> None:
    """Raises UserError for a page that would replace a directory, a pipe, a picture or one of `photos`."""
    require_replaceable(path)
    is_query = exists(path) and any(exists(photo) and samefile(path, photo) for photo in photos)
    if is_query or path.suffix.lower() in SUFFIXES | UNREAD_SUFFIXES:
        problem = "is a photo of the search" if is_query else f"has the suffix of a picture, {path.suffix}"
        raise UserError(f"{path} {problem}: the page would replace it.", "Name a page such as found.html.")


def _below(folder: Path) -> list[Path]:
    return [folder / name for name in picture_names(Directory(folder), "find").pictures]


def _json(
    catalog: Catalog,
    results: Results,
    threshold: Threshold | None,
    problem: UncalibratedError | None,
) -> str:
    content = {
        "catalog": str(catalog.directory),
        "photos": str(catalog.photos),
        "rule": catalog.rule if threshold is None else threshold.rule,
        "curve": (catalog.about["decision"] or {}).get("curve"),
        "threshold": None if threshold is None else threshold._asdict(),
        "not_calibrated": None if problem is None else {"reason": problem.what, "remedy": problem.remedy},
        "queries": [
            {
                "query": str(photo),
                "unknown": answer.unknown,
                "products": [product._asdict() for product in answer.products],
                "matches": [match._asdict() for match in answer.matches],
            }
            for photo, answer in zip(results.photos, results.answers, strict=True)
        ],
        "excluded": [{"query": str(photo), "reason": reason} for photo, reason in results.excluded.items()],
    }
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    return text.encode(errors="backslashreplace").decode()  # a byte of a name that is not UTF-8: \\udcff


def _lines(catalog: Catalog, results: Results, statement: str | None) -> Iterator[str]:
    if statement is not None:
        yield statement
    for photo, answer in zip(results.photos, results.answers, strict=True):
        yield printable(str(photo)) + (": unknown; candidates:" if answer.unknown else "")
        width = max((len(printable(product.label)) for product in answer.products), default=0)
        for product in answer.products:
            votes = f"{product.votes} match{'es' * (product.votes > 1)}"
            yield f"      {product.score:.3f}  {printable(product.label):<{width}}  {votes}"
        for rank, match in enumerate(answer.matches, 1):
            yield f"{rank:4d}  {match.similarity:.3f}  {printable(str(catalog.photos / match.path))}"
