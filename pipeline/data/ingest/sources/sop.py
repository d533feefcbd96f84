"""Stanford Online Products (Oh Song et al., CVPR 2016): products of an online shop. The split is published as
two lists.

    Stanford_Online_Products/Ebay_train.txt    image_id class_id super_class_id path
                                               1 1 1 bicycle_final/111085122871_0.JPG
    Stanford_Online_Products/Ebay_test.txt     classes 11,319 to 22,634

About two thousand pictures are exact copies of others. They are part of the benchmark and are included. The
entry `duplicates` of the manifest counts them.
"""

from pathlib import Path

from unseen.data.ingest.census import Count, require_counts
from unseen.data.ingest.collection import Collection, Picture
from unseen.data.ingest.files.archive import leaves_its_folder
from unseen.data.ingest.files.tree import Branch, Tree
from unseen.data.ingest.releases import PUBLISHED, missing_data_error
from unseen.data.ingest.settings import SopSource
from unseen.runtime.errors import UserError

COUNTS = {"train": Count(59_551, 11_318), "test": Count(60_502, 11_316)}
LISTS = {"train": "Ebay_train.txt", "test": "Ebay_test.txt"}
HEADER = ["image_id", "class_id", "super_class_id", "path"]


def collection(source: SopSource, scratch: Path) -> Collection:
    """The pictures, named as in the lists; classes are named by their number. Raises UserError if a file is
    missing or the set is not the published one."""
    published = PUBLISHED["sop"]
    tree = Tree(Path(source.path), published, scratch)
    branch = tree.below(LISTS["train"])
    if branch is None or LISTS["test"] not in branch:
        missing = LISTS["train"] if branch is None else LISTS["test"]
        raise missing_data_error("sop", tree.path, f"contains no {missing}")
    pictures: list[Picture] = []
    ids: set[int] = set()
    for split, list_file in LISTS.items():
        pictures += _rows(branch, list_file, split, ids)
    cause = (
        "The lists were changed or truncated: fetch the archive again. "
        "A split into halves of the classes (11,317) is not that of the papers."
    )
    require_counts(pictures, COUNTS, str(tree.path), published.title, cause)
    branch.require((picture.source for picture in pictures), "Ebay_train.txt or Ebay_test.txt")
    return Collection(str(tree.path), pictures, branch.read, {"published": published.title})


def _rows(branch: Branch, list_file: str, split: str, ids: set[int]) -> list[Picture]:
    """The pictures of one list. Adds their numbers to `ids`, the numbers of all lists."""
    lines = branch.text(list_file).splitlines()
    location = f"{branch.tree.path}: {branch.root}{list_file}"
    if not lines or lines[0].split() != HEADER:
        raise UserError(
            f"{location} begins with {lines[0][:60] if lines else ''!r}.",
            f"It must begin with `{' '.join(HEADER)}`: fetch the archive again.",
        )
    pictures = []
    for line, text in enumerate(lines[1:], 2):
        values = text.split()
        has_columns = len(values) == 4 and all(value.isdecimal() for value in values[:3])
        if not has_columns or leaves_its_folder(values[3]) or int(values[0]) in ids:
            raise UserError(
                f"{location}:{line} is {text[:60]!r}.",
                "Each line must be a new image, its class, its super-class and its path. "
                "Fetch the archive again.",
            )
        ids.add(int(values[0]))
        super_class = values[3].partition("/")[0].removesuffix("_final")
        pictures.append(Picture(values[3], f"{int(values[1]):05d}", split, group=super_class))
    return pictures
