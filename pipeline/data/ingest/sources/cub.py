"""CUB-200-2011 (Wah et al. 2011): birds. Classes 1-100 are train, 101-200 test, the split of all retrieval
papers since Oh Song et al., CVPR 2016.

    CUB_200_2011/images/001.Black_footed_Albatross/Black_Footed_Albatross_0046_18.jpg
    CUB_200_2011/images.txt               1 001.Black_footed_Albatross/Black_Footed_Albatross_0046_18.jpg
    CUB_200_2011/image_class_labels.txt   1 1

`train_test_split.txt` divides every class for classification. It is not read, because its train part contains
images of every test class. Files that `images.txt` does not list (`._...` of a desktop) are ignored. Some
files are grey: decoding converts them to RGB.
"""

from pathlib import Path

from unseen.data.ingest.census import Count, require_counts
from unseen.data.ingest.collection import Collection, Picture
from unseen.data.ingest.files.archive import leaves_its_folder
from unseen.data.ingest.files.tree import Branch, Tree
from unseen.data.ingest.releases import PUBLISHED, missing_data_error
from unseen.data.ingest.settings import CubSource
from unseen.runtime.errors import UserError

COUNTS = {"train": Count(5_864, 100), "test": Count(5_924, 100)}
LAST_TRAIN_CLASS = 100
# CUB-200 is the smaller set of 2010 with the same classes. Its Recall@1 is two points lower.
IMAGES_OF_2010 = 6_033
_LIST, _LABELS = "images.txt", "image_class_labels.txt"


def collection(source: CubSource, scratch: Path) -> Collection:
    """The pictures, named as in `images.txt`. Raises UserError if a file is missing or the set is not
    CUB-200-2011."""
    published = PUBLISHED["cub"]
    tree = Tree(Path(source.path), published, scratch)
    branch = tree.below(_LIST)
    if branch is None:
        images = sum(name.lower().endswith(".jpg") for name in tree.names())
        hint = ""
        if images == IMAGES_OF_2010:
            hint = f" and {images:,} images: this is CUB-200 of 2010, not CUB-200-2011"
        raise missing_data_error("cub", tree.path, f"contains no {_LIST}{hint}")
    if _LABELS not in branch:
        raise missing_data_error("cub", tree.path, f"contains no {_LABELS} beside {_LIST}")
    names, labels = _column(branch, _LIST), _column(branch, _LABELS)
    if names.keys() != labels.keys():
        raise UserError(
            f"{tree.path}: {_LIST} and {_LABELS} contain different image numbers.", "Fetch the archive again."
        )
    pictures = []
    for number, name in names.items():
        folder, label = name.partition("/")[0], labels[number]
        if leaves_its_folder(name) or not label.isdecimal() or folder[:3] != f"{int(label):03d}":
            raise UserError(
                f"{tree.path}: image {number} of {_LIST} is {name!r}, of class {label!r} in {_LABELS}.",
                "Fetch the archive again.",
            )
        pictures.append(Picture(name, folder, "train" if int(label) <= LAST_TRAIN_CLASS else "test"))
    cause = "The lists were changed or truncated: fetch them again."
    if len(pictures) == IMAGES_OF_2010:
        cause = "These are the images of CUB-200 of 2010. Fetch CUB-200-2011."
    require_counts(pictures, COUNTS, str(tree.path), published.title, cause)
    images_folder = Branch(tree, f"{branch.root}images/")
    images_folder.require((picture.source for picture in pictures), _LIST)
    return Collection(str(tree.path), pictures, images_folder.read, {"published": published.title})


def _column(branch: Branch, list_file: str) -> dict[int, str]:
    """The second column by the first. Raises UserError for a line that is not a new number and one word."""
    rows: dict[int, str] = {}
    for line, text in enumerate(branch.text(list_file).splitlines(), 1):
        number, _, value = text.strip().partition(" ")
        if not number.isdecimal() or not value or " " in value or int(number) in rows:
            raise UserError(
                f"{branch.tree.path}: {branch.root}{list_file}:{line} is {text[:60]!r}.",
                "Each line must be a new number and one word. Fetch the archive again.",
            )
        rows[int(number)] = value
    return rows
