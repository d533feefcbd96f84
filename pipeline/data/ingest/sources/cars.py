"""Cars-196 (Krause et al. 2013): makes and models of cars. Classes 1-98 are train, 99-196 test, the split of
retrieval papers since Oh Song et al. 2016.

The same 16,185 images were published in two layouts:

    car_ims/000001.jpg ...             images
    cars_annos.mat                     annotations (relative_im_path, bbox_x1, ..., class, test), class_names

    cars_train/00001.jpg ...           images
    cars_test/00001.jpg ...            images
    devkit/cars_train_annos.mat        annotations (bbox_x1, ..., class, fname)
    cars_test_annos_withlabels.mat     the same fields; devkit/cars_test_annos.mat has no class
    devkit/cars_meta.mat               class_names

Both mark 8,144 training and 8,041 test images (the field `test`, the two folders) for classification, where
every class is in both parts. The marks are ignored: only the class determines the split.
"""

import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.io import loadmat

from unseen.data.ingest.census import Count, require_counts
from unseen.data.ingest.collection import Collection, Picture
from unseen.data.ingest.files.archive import leaves_its_folder
from unseen.data.ingest.files.tree import Branch, Folders, Tree
from unseen.data.ingest.releases import PUBLISHED, missing_data_error
from unseen.data.ingest.settings import CarsSource
from unseen.runtime.errors import UserError

COUNTS = {"train": Count(8_054, 98), "test": Count(8_131, 98)}
LAST_TRAIN_CLASS = 98


class _Row(NamedTuple):
    """An annotation."""

    image: str  # folder and file
    label: int  # from 1


def collection(source: CarsSource, scratch: Path) -> Collection:
    """The pictures, named by their folder and file; classes by number and name. Raises UserError if a file is
    missing or the set is not the published one."""
    published = PUBLISHED["cars"]
    tree = Tree(Path(source.path), published, scratch)
    branch = tree.below("cars_annos.mat")
    names, rows = _second_layout(tree) if branch is None else _first_layout(tree, branch)
    if not all(1 <= row.label <= len(names) for row in rows):
        raise UserError(
            f"{tree.path}: the class of an annotation is outside the {len(names)} named classes.",
            "Fetch the annotations again.",
        )
    pictures = []
    for row in rows:
        split = "train" if row.label <= LAST_TRAIN_CLASS else "test"
        pictures.append(Picture(row.image, f"{row.label:03d}.{names[row.label - 1]}", split))
    cause = "The annotations are not the published ones, or they are those of one part: fetch them again."
    require_counts(pictures, COUNTS, str(tree.path), published.title, cause)
    images_of: dict[str, list[str]] = {}  # by folder
    for row in rows:
        images_of.setdefault(row.image.partition("/")[0], []).append(row.image)
    read = Folders({folder: _folder(tree, images[0]) for folder, images in sorted(images_of.items())})
    for folder, branch in read.branches.items():
        branch.require(images_of[folder], "the annotations")
    return Collection(str(tree.path), pictures, read, {"published": published.title})


def _first_layout(tree: Tree, branch: Branch) -> tuple[list[str], list[_Row]]:
    """The names of the classes, and the annotations."""
    mat = _mat(branch, "cars_annos.mat")
    return _class_names(mat, tree), _rows(mat, tree, "cars_annos.mat", "relative_im_path", "")


def _second_layout(tree: Tree) -> tuple[list[str], list[_Row]]:
    """The names of the classes, and the annotations of both parts."""
    train_file, test_file = "cars_train_annos.mat", "cars_test_annos_withlabels.mat"
    devkit, test = tree.below(train_file), tree.below(test_file)
    if devkit is None or "cars_meta.mat" not in devkit:
        problem = f"contains neither cars_annos.mat nor the devkit with {train_file} and cars_meta.mat"
        raise missing_data_error("cars", tree.path, problem)
    if test is None:
        problem = f"contains no {test_file} (cars_test_annos.mat of the devkit has no classes)"
        raise missing_data_error("cars", tree.path, problem)
    names = _class_names(_mat(devkit, "cars_meta.mat"), tree)
    rows = _rows(_mat(devkit, train_file), tree, train_file, "fname", "cars_train/")
    return names, rows + _rows(_mat(test, test_file), tree, test_file, "fname", "cars_test/")


def _folder(tree: Tree, first_image: str) -> Branch:
    branch = tree.below(first_image)
    if branch is None:
        problem = f"contains no {first_image}, the first image of the annotations"
        raise missing_data_error("cars", tree.path, problem)
    return branch


def _mat(branch: Branch, name: str) -> dict[str, Any]:
    try:
        mat: dict[str, Any] = loadmat(io.BytesIO(branch.read(name)))
        return mat
    except Exception as error:  # scipy raises many types for damaged bytes
        raise UserError(
            f"{branch.tree.path}: {branch.root}{name} is not a readable MAT file: {error}.", "Fetch it again."
        ) from error


def _rows(mat: dict[str, Any], tree: Tree, name: str, field: str, folder: str) -> list[_Row]:
    """The annotations of the file `name`; `field` contains the image, relative to `folder`. Raises UserError
    if a field is missing or the path of an image leads out of the folder."""
    annotations = mat.get("annotations", np.empty(0))
    fields = annotations.dtype.names or ()
    if field not in fields or "class" not in fields:
        raise UserError(
            f"{tree.path}: the annotations of {name} have {', '.join(fields) or 'no fields'}; "
            f"expected {field} and class.",
            "Fetch it again.",
        )
    pairs = zip(annotations[field].ravel(), annotations["class"].ravel(), strict=True)
    rows = [_Row(folder + str(image.item()), int(label.item())) for image, label in pairs]
    for row in rows:
        if leaves_its_folder(row.image) or "/" not in row.image:
            raise UserError(
                f"{tree.path}: {name} lists {row.image!r}.", "It is not the published file: fetch it again."
            )
    return rows


def _class_names(mat: dict[str, Any], tree: Tree) -> list[str]:
    if "class_names" not in mat:
        raise UserError(
            f"{tree.path}: the annotations contain no class_names.",
            "It is not the published file: fetch it again.",
        )
    return [str(name.item()) for name in mat["class_names"].ravel()]
