"""python -m pipeline.catalog build MODEL PHOTOS CATALOG          builds or updates the catalog of a folder
python -m pipeline.catalog find CATALOG PICTURE [PICTURE ...]    finds the nearest pictures
"""

import argparse
import sys
from pathlib import Path

from pipeline.catalog.build import build
from pipeline.catalog.catalog import Catalog
from pipeline.catalog.results_page import page
from pipeline.index.kinds import KINDS
from pipeline.runtime.files import atomic_file
from pipeline.runtime.stage import report_errors


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.catalog", description="Search a folder of pictures with a trained model."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build", help="build or update the catalog of a folder of pictures")
    building.add_argument(
        "model", type=Path, help="directory of a trained model, e.g. data/models/folder/ms/0"
    )
    building.add_argument(
        "photos", type=Path, help="folder of pictures, with its subfolders; labels are not needed"
    )
    building.add_argument("catalog", type=Path, help="directory to write")
    building.add_argument(
        "--skip-damaged", action="store_true", help="exclude unreadable pictures instead of stopping"
    )
    building.add_argument(
        "--index",
        choices=list(KINDS),
        help="kind of index; default: that of the existing catalog, otherwise flat",
    )
    finding = commands.add_parser("find", help="find the nearest pictures of a catalog")
    finding.add_argument("catalog", type=Path)
    finding.add_argument("pictures", type=Path, nargs="+", metavar="picture")
    finding.add_argument("-k", type=int, default=10, help="matches per picture (default: 10)")
    finding.add_argument("--page", type=Path, help="also write the matches to this HTML file")
    arguments = parser.parse_args()
    with report_errors():
        if arguments.command == "build":
            index = KINDS[arguments.index]() if arguments.index else None
            catalog = build(
                arguments.model, arguments.photos, arguments.catalog, arguments.skip_damaged, index
            )
            excluded = len(catalog.about["left_out"])
            suffix = f", {excluded:,} excluded" if excluded else ""
            sys.stdout.write(f"{arguments.catalog}: {len(catalog):,} pictures{suffix}\n")
        else:
            _find(Catalog(arguments.catalog), arguments.pictures, arguments.k, arguments.page)


def _find(catalog: Catalog, pictures: list[Path], k: int, html: Path | None) -> None:
    results = catalog.find(pictures, k)
    for picture, matches in zip(pictures, results, strict=True):
        sys.stdout.write(f"{picture}\n")
        for rank, match in enumerate(matches, 1):
            sys.stdout.write(f"{rank:4d}  {match.similarity:.3f}  {catalog.photos / match.path}\n")
    if html is not None:
        text = page(catalog, pictures, results)
        with atomic_file(html) as aside:
            aside.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
