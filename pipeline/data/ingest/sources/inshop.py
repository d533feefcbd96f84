"""In-Shop Clothes Retrieval (Liu et al., CVPR 2016): items of a clothes shop. The queries and the gallery of
the test items are published.

    Img/img.zip                      img/WOMEN/Dresses/id_00000002/02_1_front.jpg
    Eval/list_eval_partition.txt     52712
                                     image_name item_id evaluation_status
                                     img/WOMEN/Dresses/id_00000002/02_1_front.jpg    id_00000002 train

The status is `train`, `query` or `gallery`. The benchmark uses the images of `img.zip`, centred and padded to
256 x 256. `img_highres.zip` contains files of the same names in full size; results on them are not
comparable.
"""

import io
from pathlib import Path

from PIL import Image

from unseen.data.decode import FORMATS
from unseen.data.ingest.census import Count, require_counts
from unseen.data.ingest.collection import Collection, Picture
from unseen.data.ingest.files.archive import leaves_its_folder
from unseen.data.ingest.files.tree import Branch, Tree
from unseen.data.ingest.releases import PUBLISHED, missing_data_error
from unseen.data.ingest.settings import InshopSource
from unseen.runtime.errors import UserError

COUNTS = {"train": Count(25_882, 3_997), "query": Count(14_218, 3_985), "gallery": Count(12_612, 3_985)}
SIDE = 256  # pixels
HEADER = ["image_name", "item_id", "evaluation_status"]
_LIST = "list_eval_partition.txt"
_MEASURED = 3  # images whose size is checked


def collection(source: InshopSource, scratch: Path) -> Collection:
    """The pictures, named as in the list; classes are items. Raises UserError if a file is missing or the set
    is not the published one."""
    published = PUBLISHED["inshop"]
    tree = Tree(Path(source.path), published, scratch)
    lists, images = tree.below(_LIST), tree.below("img/")
    if lists is None:
        raise missing_data_error("inshop", tree.path, f"contains no {_LIST}")
    if images is None:
        highres = tree.below("img_highres/") or any(name.endswith("img_highres.zip") for name in tree.names())
        problem = f"contains {'img_highres, but ' if highres else ''}neither img.zip nor the folder img"
        raise missing_data_error("inshop", tree.path, problem)
    pictures = _rows(lists)
    cause = "The list was changed or truncated: fetch it again."
    require_counts(pictures, COUNTS, str(tree.path), published.title, cause)
    query_items = {p.class_name for p in pictures if p.split == "test" and p.is_query}
    gallery_items = {p.class_name for p in pictures if p.split == "test" and not p.is_query}
    if unmatched := sorted(query_items ^ gallery_items):
        raise UserError(
            f"{tree.path}: {len(unmatched)} items are only in the query or only in the gallery: "
            f"{', '.join(unmatched[:3])}.",
            "Fetch the list again.",
        )
    images.require((picture.source for picture in pictures), _LIST)
    _require_padded(images, pictures)
    return Collection(str(tree.path), pictures, images.read, {"published": published.title})


def _rows(lists: Branch) -> list[Picture]:
    """The pictures of the list, in its order."""
    lines = lists.text(_LIST).splitlines()
    location = f"{lists.tree.path}: {lists.root}{_LIST}"
    if len(lines) < 2 or not lines[0].strip().isdecimal() or lines[1].split() != HEADER:
        raise UserError(
            f"{location} begins with {lines[:2]!r}.",
            f"It must begin with the number of images, then `{' '.join(HEADER)}`: fetch it again.",
        )
    pictures = []
    for line, text in enumerate(lines[2:], 3):
        values = text.split()
        if not values:
            continue
        if len(values) != 3 or values[2] not in ("train", "query", "gallery") or leaves_its_folder(values[0]):
            raise UserError(
                f"{location}:{line} is {text[:80]!r}.",
                "Each line must be an image, its item, and train, query or gallery: fetch the list again.",
            )
        name, item, status = values
        group = "/".join(name.split("/")[1:3])  # WOMEN/Dresses
        split = "train" if status == "train" else "test"
        pictures.append(Picture(name, item, split, status != "gallery", status != "query", group))
    if len(pictures) != int(lines[0]):
        raise UserError(
            f"{location} gives a number of {int(lines[0]):,} images but lists {len(pictures):,}.",
            "It was changed or truncated: fetch it again.",
        )
    return pictures


def _require_padded(images: Branch, pictures: list[Picture]) -> None:
    """Checks the size of a few images, to detect the images of img_highres.zip."""
    for picture in pictures[:: max(1, len(pictures) // _MEASURED)]:
        try:
            with Image.open(io.BytesIO(images.read(picture.source)), formats=FORMATS) as header:
                size = header.size
        except OSError:
            continue  # a damaged image, which is handled according to `ingest.on_error`
        if max(size) > SIDE:
            raise UserError(
                f"{images.tree.path}: {images.root}{picture.source} has {size[0]} x {size[1]} pixels: "
                "these are the images of img_highres.zip.",
                f"The benchmark uses img.zip, padded to {SIDE} x {SIDE}: replace the images with those.",
            )
