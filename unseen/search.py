"""The commands `unseen index` and `unseen find`."""

import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline.catalog.build import build
from pipeline.catalog.catalog import Catalog
from pipeline.catalog.results_page import page
from pipeline.index.kinds import KINDS
from pipeline.runtime.files import atomic_file


def write_catalog(
    photos: Path, output: Path, model: Path | None, kind: str | None, skip_damaged: bool
) -> None:
    """Builds or updates a catalog and prints its size. Raises UserError as `build` does."""
    catalog = build(photos, output, model, skip_damaged, KINDS[kind]() if kind else None)
    excluded = len(catalog.about["left_out"])
    suffix = f", {excluded:,} excluded" if excluded else ""
    sys.stdout.write(f"{output}: {len(catalog):,} pictures{suffix}\n")


def print_matches(directory: Path, photos: Sequence[Path], k: int, html: Path | None) -> None:
    """Prints the k nearest pictures of each photo, and writes them to a page. Raises UserError as `Catalog`
    and its `find` do."""
    catalog = Catalog(directory)
    results = catalog.find(photos, k)
    for picture, matches in zip(photos, results, strict=True):
        sys.stdout.write(f"{picture}\n")
        for rank, match in enumerate(matches, 1):
            sys.stdout.write(f"{rank:4d}  {match.similarity:.3f}  {catalog.photos / match.path}\n")
    if html is not None:
        text = page(catalog, photos, results)
        with atomic_file(html) as aside:
            aside.write_text(text, encoding="utf-8")
