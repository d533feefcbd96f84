"""Omniglot (Lake et al., Science 2015): handwritten characters, each drawn once by 20 people, as 1-bit PNG
files of 105 x 105 pixels.

    images_background/Alphabet_of_the_Magi/character01/0709_01.png     30 alphabets, 964 characters: train
    images_evaluation/Angelic/character01/0965_01.png                  20 alphabets, 659 characters: test

The authors' own division: no alphabet is in both. The class is the character within its alphabet, the
alphabet is the group. The files are stored as they are; decoding makes them RGB, black on white.
"""

from collections import Counter
from pathlib import Path

from pipeline.config.dataset import OmniglotSource
from pipeline.ingest.census import Count, require_counts
from pipeline.ingest.collection import Collection, Picture
from pipeline.ingest.files.tree import Branch, Tree
from pipeline.ingest.releases import PUBLISHED, not_there
from pipeline.runtime.errors import UserError

DRAWERS = 20
COUNTS = {"train": Count(19_280, 964), "test": Count(13_180, 659)}
ALPHABETS = {"train": 30, "test": 20}
FOLDERS = {"train": "images_background", "test": "images_evaluation"}
_ANEW = "The archive was unpacked or fetched in part, or files were added: unpack or fetch it again."


def collection(source: OmniglotSource, scratch: Path) -> Collection:
    """The pictures, named by part, alphabet, character and file. Raises UserError when a part is missing or
    the set is not Omniglot."""
    published = PUBLISHED["omniglot"]
    tree = Tree(Path(source.path), published, scratch)
    branches: dict[str, Branch] = {}
    pictures: list[Picture] = []
    for split, folder in FOLDERS.items():
        branch = tree.below(f"{folder}/")
        if branch is None:
            raise not_there("omniglot", tree.path, f"holds neither {folder}.zip nor the folder {folder}")
        branches[folder] = branch
        pictures += _drawings(tree, branch, split)
    title = published.title
    require_counts(pictures, COUNTS, str(tree.path), title, _ANEW)
    for name, count in Counter(picture.class_name for picture in pictures).items():
        if count != DRAWERS:
            raise UserError(
                f"{tree.path}: the character {name} has {count} drawings, expected {DRAWERS}.", _ANEW
            )
    alphabets = {
        split: {picture.group for picture in pictures if picture.split == split} for split in FOLDERS
    }
    if both := alphabets["train"] & alphabets["test"]:
        raise UserError(f"{tree.path}: the alphabet {min(map(str, both))} is in both parts.", _ANEW)
    if (found := {split: len(names) for split, names in alphabets.items()}) != ALPHABETS:
        raise UserError(
            f"{tree.path} is not {title}: found {found['train']} and {found['test']} alphabets; it has 30 "
            "and 20.",
            _ANEW,
        )
    return Collection(str(tree.path), pictures, Drawings(branches), {"published": title})


class Drawings:
    """The file of a picture; the two parts may lie in different archives and folders."""

    def __init__(self, branches: dict[str, Branch]) -> None:
        self.branches = branches

    def __call__(self, source: str) -> bytes:
        return self.branches[source.partition("/")[0]].read(source)


def _drawings(tree: Tree, branch: Branch, split: str) -> list[Picture]:
    pictures = []
    for name in tree.names():
        source = name.removeprefix(branch.root)
        if not (
            name.startswith(branch.root)
            and source.startswith(f"{FOLDERS[split]}/")
            and source.lower().endswith(".png")
        ):
            continue
        parts = source.split("/")
        if len(parts) != 4:
            raise UserError(
                f"{tree.path}: {name} does not lie in the folder of an alphabet and a character.", _ANEW
            )
        pictures.append(Picture(source, f"{parts[1]}/{parts[2]}", split, group=parts[1]))
    return pictures
