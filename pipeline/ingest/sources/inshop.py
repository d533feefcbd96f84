"""In-Shop Clothes Retrieval (Liu et al., CVPR 2016): items of a clothes shop. Queries and gallery of the test
items are given.

    Img/img.zip                      img/WOMEN/Dresses/id_00000002/02_1_front.jpg
    Eval/list_eval_partition.txt     52712
                                     image_name item_id evaluation_status
                                     img/WOMEN/Dresses/id_00000002/02_1_front.jpg    id_00000002 train

The status is `train`, `query` or `gallery`. The images of the benchmark are those of `img.zip`, centred and
padded to 256 x 256; `img_highres.zip` holds the same names at their full size, and numbers on it are not
comparable.
"""

import io
from pathlib import Path

from PIL import Image

from pipeline.config.dataset import InshopSource
from pipeline.data.decode import FORMATS
from pipeline.ingest.census import Count, require_counts
from pipeline.ingest.collection import Collection, Picture
from pipeline.ingest.files.archive import leaves_its_folder
from pipeline.ingest.files.tree import Branch, Tree
from pipeline.ingest.releases import PUBLISHED, not_there
from pipeline.runtime.errors import UserError

COUNTS = {"train": Count(25_882, 3_997), "query": Count(14_218, 3_985), "gallery": Count(12_612, 3_985)}
SIDE = 256  # pixels
HEADER = ["image_name", "item_id", "evaluation_status"]
_LIST = "list_eval_partition.txt"
_LOOKED_AT = 3  # images whose size is read: one at a time is enough to tell the two archives apart


def collection(source: InshopSource, scratch: Path) -> Collection:
    """The pictures, named as in the list; classes are items. Raises UserError when a file is missing or the
    set is not this one."""
    published = PUBLISHED["inshop"]
    tree = Tree(Path(source.path), published, scratch)
    lists, images = tree.below(_LIST), tree.below("img/")
    if lists is None:
        raise not_there("inshop", tree.path, f"holds no {_LIST}")
    if images is None:
        highres = tree.below("img_highres/") or any(name.endswith("img_highres.zip") for name in tree.names())
        raise not_there(
            "inshop",
            tree.path,
            f"holds {'img_highres, but ' if highres else ''}neither img.zip nor the folder img",
        )
    pictures = _rows(lists)
    require_counts(
        pictures,
        COUNTS,
        str(tree.path),
        published.title,
        "The list was changed, or cut short: fetch it again.",
    )
    items = {
        part: {p.class_name for p in pictures if p.split == "test" and p.is_query == (part == "query")}
        for part in ("query", "gallery")
    }
    if items["query"] != items["gallery"]:
        odd = sorted(items["query"] ^ items["gallery"])
        raise UserError(
            f"{tree.path}: {len(odd)} items are only in the query or only in the gallery: "
            f"{', '.join(odd[:3])}.",
            "Fetch the list again.",
        )
    images.require((picture.source for picture in pictures), _LIST)
    _require_padded(images, pictures)
    return Collection(str(tree.path), pictures, images.read, {"published": published.title})


def _rows(lists: Branch) -> list[Picture]:
    lines = lists.text(_LIST).splitlines()
    where = f"{lists.tree.path}: {lists.root}{_LIST}"
    if len(lines) < 2 or not lines[0].strip().isdecimal() or lines[1].split() != HEADER:
        raise UserError(
            f"{where} begins with {lines[:2]!r}.",
            f"It should begin with the number of images, then `{' '.join(HEADER)}`.",
        )
    pictures = []
    for line, text in enumerate(lines[2:], 3):
        values = text.split()
        if not values:
            continue
        if len(values) != 3 or values[2] not in ("train", "query", "gallery") or leaves_its_folder(values[0]):
            raise UserError(
                f"{where}:{line} is {text[:80]!r}.",
                "It should be an image, its item, and train, query or gallery.",
            )
        name, item, status = values
        group = "/".join(name.split("/")[1:3])  # WOMEN/Dresses
        pictures.append(
            Picture(
                name,
                item,
                "train" if status == "train" else "test",
                status != "gallery",
                status != "query",
                group,
            )
        )
    if len(pictures) != int(lines[0]):
        raise UserError(
            f"{where} announces {int(lines[0]):,} images and lists {len(pictures):,}.",
            "It was changed, or cut short: fetch it again.",
        )
    return pictures


def _require_padded(images: Branch, pictures: list[Picture]) -> None:
    for picture in pictures[:: max(1, len(pictures) // _LOOKED_AT)]:
        try:
            with Image.open(io.BytesIO(images.read(picture.source)), formats=FORMATS) as header:
                size = header.size
        except OSError:
            continue  # a damaged image: `ingest.on_error` says what becomes of it
        if max(size) > SIDE:
            raise UserError(
                f"{images.tree.path}: {images.root}{picture.source} has {size[0]} x {size[1]} pixels: these "
                "are the images of img_highres.zip.",
                f"The benchmark is on img.zip, padded to {SIDE} x {SIDE}: put that in its place.",
            )
