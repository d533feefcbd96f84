"""python -m pipeline.catalog build MODEL PHOTOS CATALOG          embeds a folder of photographs
python -m pipeline.catalog find CATALOG PICTURE [PICTURE ...]    what looks most like a new one
"""

import argparse
import sys
from pathlib import Path

from pipeline.catalog.build import build
from pipeline.catalog.catalog import Catalog
from pipeline.catalog.results_page import page
from pipeline.runtime.files import atomic_file
from pipeline.runtime.stage import said_plainly


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.catalog", description="Search a folder of photographs with a trained model and new pictures."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("build", help="embed a folder of photographs; again: bring the catalog up to date")
    making.add_argument("model", type=Path, help="directory of a trained model, such as data/models/folder/ms/0")
    making.add_argument("photos", type=Path, help="folder of photographs, searched with all its folders; no labels are needed")
    making.add_argument("catalog", type=Path, help="directory to write")
    making.add_argument("--skip-damaged", action="store_true", help="leave pictures out that cannot be read, rather than stop")
    asking = commands.add_parser("find", help="find what looks most like a picture")
    asking.add_argument("catalog", type=Path)
    asking.add_argument("pictures", type=Path, nargs="+", metavar="picture")
    asking.add_argument("-k", type=int, default=10, help="matches per picture (default: 10)")
    asking.add_argument("--page", type=Path, help="write the pictures found to this HTML file as well")
    arguments = parser.parse_args()
    with said_plainly():
        if arguments.command == "build":
            made = build(arguments.model, arguments.photos, arguments.catalog, arguments.skip_damaged)
            left_out = len(made.about["left_out"])
            sys.stdout.write(f"{arguments.catalog}: {len(made):,} pictures{f', {left_out:,} left out' if left_out else ''}\n")
        else:
            _find(Catalog(arguments.catalog), arguments.pictures, arguments.k, arguments.page)


def _find(catalog: Catalog, pictures: list[Path], k: int, to: Path | None) -> None:
    found = catalog.find(pictures, k)
    for picture, matches in zip(pictures, found, strict=True):
        sys.stdout.write(f"{picture}\n")
        for rank, match in enumerate(matches, 1):
            sys.stdout.write(f"{rank:4d}  {match.similarity:.3f}  {catalog.photos / match.path}\n")
    if to is not None:
        html = page(catalog, pictures, found)
        with atomic_file(to) as aside:
            aside.write_text(html, encoding="utf-8")


if __name__ == "__main__":
    main()
