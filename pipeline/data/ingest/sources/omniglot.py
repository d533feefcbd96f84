"""Omniglot (Lake et al., Science 2015): handwritten characters, each drawn once by each of 20 people, as
1-bit PNG files of 105 x 105 pixels.

    images_background/Alphabet_of_the_Magi/character01/0709_01.png     30 alphabets, 964 characters: train
    images_evaluation/Angelic/character01/0965_01.png                  20 alphabets, 659 characters: test

This is the authors' division: no alphabet is in both parts. The class is the character within its alphabet,
the group is the alphabet. The files are stored unchanged; decoding converts them to RGB, black on white.
"""

from collections import Counter
from pathlib import Path

from unseen.data.ingest.census import Count, require_counts
from unseen.data.ingest.collection import Collection, Picture
from unseen.data.ingest.files.tree import Branch, Folders, Tree
from unseen.data.ingest.releases import PUBLISHED, missing_data_error
from unseen.data.ingest.settings import OmniglotSource
from unseen.runtime.errors import UserError

DRAWERS = 20
COUNTS = {"train": Count(19_280, 964), "test": Count(13_180, 659)}
ALPHABETS = {"train": 30, "test": 20}
FOLDERS = {"train": "images_background", "test": "images_evaluation"}
_FETCH_AGAIN = (
    "The archive was not unpacked or fetched completely, or files were added: unpack or fetch it again."
)


def collection(source: OmniglotSource, scratch: Path) -> Collection:
    """The pictures, named by part, alphabet, character and file. Raises UserError if a part is missing or the
    set is not Omniglot."""
    published = PUBLISHED["omniglot"]
    tree = Tree(Path(source.path), published, scratch)
    branches: dict[str, Branch] = {}
    pictures: list[Picture] = []
    for split, folder in FOLDERS.items():
        branch = tree.below(f"{folder}/")
        if branch is None:
            problem = f"contains neither {folder}.zip nor the folder {folder}"
            raise missing_data_error("omniglot", tree.path, problem)
        branches[folder] = branch
        pictures += _drawings(tree, branch, split)
    title = published.title
    require_counts(pictures, COUNTS, str(tree.path), title, _FETCH_AGAIN)
    for name, count in Counter(picture.class_name for picture in pictures).items():
        if count != DRAWERS:
            problem = f"the character {name} has {count} drawings, expected {DRAWERS}"
            raise UserError(f"{tree.path}: {problem}.", _FETCH_AGAIN)
    train, test = (
        {str(picture.group) for picture in pictures if picture.split == split} for split in ("train", "test")
    )
    if both := train & test:
        raise UserError(f"{tree.path}: the alphabet {min(both)} is in both parts.", _FETCH_AGAIN)
    if {"train": len(train), "test": len(test)} != ALPHABETS:
        expected = f"{ALPHABETS['train']} and {ALPHABETS['test']}"
        raise UserError(
            f"{tree.path} is not {title}: found {len(train)} and {len(test)} alphabets; expected {expected}.",
            _FETCH_AGAIN,
        )
    return Collection(str(tree.path), pictures, Folders(branches), {"published": title})


def _drawings(tree: Tree, branch: Branch, split: str) -> list[Picture]:
    """The pictures of one part."""
    prefix = f"{branch.root}{FOLDERS[split]}/"
    pictures = []
    for name in tree.names():
        if not name.startswith(prefix) or not name.lower().endswith(".png"):
            continue
        source = name.removeprefix(branch.root)
        parts = source.split("/")
        if len(parts) != 4:
            raise UserError(
                f"{tree.path}: {name} is not in a folder of an alphabet and a character.", _FETCH_AGAIN
            )
        pictures.append(Picture(source, f"{parts[1]}/{parts[2]}", split, group=parts[1]))
    return pictures
