"""Cars-196 (Krause et al. 2013): makes and models of cars. Classes 1-98 train, 99-196 test, as retrieval
papers split it since Oh Song et al. 2016.

Two layouts of the same 16,185 images were published:

    car_ims/000001.jpg ...     cars_annos.mat     annotations: relative_im_path, bbox_x1, ..., class, test;
    class_names cars_train/00001.jpg ...   devkit/cars_train_annos.mat       annotations: bbox_x1, ..., class,
    fname cars_test/00001.jpg ...    cars_test_annos_withlabels.mat    the same; devkit/cars_test_annos.mat
    has no class
                               devkit/cars_meta.mat              class_names

Their division into 8,144 training and 8,041 test images (the field `test`, the two folders) is that of
classification, in which every class is on both sides. It is ignored: only the class decides.
"""

import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.io import loadmat

from pipeline.config.dataset import CarsSource
from pipeline.ingest.census import Count, require_counts
from pipeline.ingest.collection import Collection, Picture
from pipeline.ingest.files.archive import leaves_its_folder
from pipeline.ingest.files.tree import Branch, Tree
from pipeline.ingest.releases import PUBLISHED, not_there
from pipeline.runtime.errors import UserError

COUNTS = {"train": Count(8_054, 98), "test": Count(8_131, 98)}
LAST_TRAIN_CLASS = 98


class _Row(NamedTuple):
    image: str
    label: int


def collection(source: CarsSource, scratch: Path) -> Collection:
    """The pictures, named by their folder and file; classes by number and name. Raises UserError when a file
    is missing or the set is another."""
    published = PUBLISHED["cars"]
    tree = Tree(Path(source.path), published, scratch)
    if (branch := tree.below("cars_annos.mat")) is not None:
        mat = _mat(branch, "cars_annos.mat")
        names, rows = _class_names(mat, tree), _rows(mat, tree, "cars_annos.mat", "relative_im_path", "")
    else:
        devkit, test = _second_layout(tree)
        names = _class_names(_mat(devkit, "cars_meta.mat"), tree)
        rows = _rows(
            _mat(devkit, "cars_train_annos.mat"), tree, "cars_train_annos.mat", "fname", "cars_train/"
        )
        rows += _rows(
            _mat(test, "cars_test_annos_withlabels.mat"),
            tree,
            "cars_test_annos_withlabels.mat",
            "fname",
            "cars_test/",
        )
    if not all(1 <= row.label <= len(names) for row in rows):
        raise UserError(
            f"{tree.path}: an annotation is of a class beyond the {len(names)} named ones.",
            "Fetch the annotations again.",
        )
    pictures = [
        Picture(
            row.image,
            f"{row.label:03d}.{names[row.label - 1]}",
            "train" if row.label <= LAST_TRAIN_CLASS else "test",
        )
        for row in rows
    ]
    cause = "The annotations are not the published ones, or only those of one half: fetch them again."
    require_counts(pictures, COUNTS, str(tree.path), published.title, cause)
    files = _Folders(
        {
            folder: _folder(tree, folder, rows)
            for folder in sorted({row.image.partition("/")[0] for row in rows})
        }
    )
    for folder, branch in files.branches.items():
        branch.require((row.image for row in rows if row.image.startswith(f"{folder}/")), "the annotations")
    return Collection(str(tree.path), pictures, files.read, {"published": published.title})


class _Folders:
    """The folders of images, which may lie in different archives and folders."""

    def __init__(self, branches: dict[str, Branch]) -> None:
        self.branches = branches

    def read(self, name: str) -> bytes:
        return self.branches[name.partition("/")[0]].read(name)


def _second_layout(tree: Tree) -> tuple[Branch, Branch]:
    devkit, test = tree.below("cars_train_annos.mat"), tree.below("cars_test_annos_withlabels.mat")
    if devkit is None or "cars_meta.mat" not in devkit:
        raise not_there(
            "cars",
            tree.path,
            "holds neither cars_annos.mat nor the devkit with cars_train_annos.mat and cars_meta.mat",
        )
    if test is None:
        raise not_there(
            "cars",
            tree.path,
            "holds no cars_test_annos_withlabels.mat (cars_test_annos.mat of the devkit names no classes)",
        )
    return devkit, test


def _folder(tree: Tree, folder: str, rows: list[_Row]) -> Branch:
    first = next(row.image for row in rows if row.image.startswith(f"{folder}/"))
    branch = tree.below(first)
    if branch is None:
        raise not_there("cars", tree.path, f"holds no {first}, the first image that the annotations list")
    return branch


def _mat(branch: Branch, name: str) -> dict[str, Any]:
    try:
        mat: dict[str, Any] = loadmat(io.BytesIO(branch.read(name)))
        return mat
    except Exception as error:  # damaged bytes make scipy raise nearly anything
        raise UserError(
            f"{branch.tree.path}: {branch.root}{name} is no readable MAT file: {error}.", "Fetch it again."
        ) from error


def _rows(mat: dict[str, Any], tree: Tree, name: str, field: str, folder: str) -> list[_Row]:
    """Image and class of every annotation. Raises UserError when the fields are not there or an image leaves
    the folder."""
    annotations = mat.get("annotations", np.empty(0))
    fields = annotations.dtype.names or ()
    if field not in fields or "class" not in fields:
        raise UserError(
            f"{tree.path}: annotations of {name} have {', '.join(fields) or 'no fields'}; needed: {field}, "
            "class.",
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
            f"{tree.path}: the annotations hold no class_names.",
            "They are not the published file: fetch it again.",
        )
    return [str(name.item()) for name in mat["class_names"].ravel()]
