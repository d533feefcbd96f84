"""Small archives in the published layouts of CUB-200-2011, Cars-196, SOP and In-Shop, with real images."""

import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat

from tests.data.ingest.pictures import encode, pixels

Files = dict[str, bytes]
BIRDS = {1: "Black_footed_Albatross", 2: "Laysan_Albatross", 3: "Sooty_Albatross", 4: "Groove_billed_Ani"}
CARS = (
    "AM General Hummer SUV 2000",
    "Acura RL Sedan 2012",
    "Acura TL Sedan 2012",
    "Ram C/V Cargo Van Minivan 2012",
)


def one_bit(seed: int) -> bytes:
    """A black-and-white picture with one bit per pixel, as PNG."""
    stream = io.BytesIO()
    Image.fromarray(pixels(seed)).convert("1").save(stream, "PNG")
    return stream.getvalue()


def grey(seed: int) -> bytes:
    return encode(pixels(seed)[..., 0])


def cub(root: str = "CUB_200_2011/") -> Files:
    """Four classes of three images, including a grey and a 1-bit image; the split of classification; a file
    of a desktop."""
    names = [
        f"{label:03d}.{bird}/{bird}_{image:04d}_{label}.jpg"
        for label, bird in BIRDS.items()
        for image in range(3)
    ]
    files = {f"{root}images/{name}": encode(pixels(number)) for number, name in enumerate(names)}
    files[f"{root}images/{names[1]}"] = grey(1)
    files[f"{root}images/{names[2]}"] = one_bit(2)
    files |= {
        f"{root}images/001.Black_footed_Albatross/._Black_Footed_Albatross_0000_1.jpg": (
            b"\0\5\x16\7\0\2\0\0Mac OS X"
        ),
        f"{root}images.txt": "".join(f"{number} {name}\n" for number, name in enumerate(names, 1)).encode(),
        f"{root}image_class_labels.txt": "".join(
            f"{number} {int(name[:3])}\n" for number, name in enumerate(names, 1)
        ).encode(),
        f"{root}train_test_split.txt": "".join(
            f"{number} {number % 2}\n" for number in range(1, len(names) + 1)
        ).encode(),
        f"{root}bounding_boxes.txt": "".join(
            f"{number} 1.0 1.0 9.0 9.0\n" for number in range(1, len(names) + 1)
        ).encode(),
        f"{root}classes.txt": "".join(
            f"{label} {label:03d}.{bird}\n" for label, bird in BIRDS.items()
        ).encode(),
    }
    return files | ({"attributes.txt": b"1 has_bill_shape::curved_(up_or_down)\n"} if root else {})


def mat(**variables: object) -> bytes:
    stream = io.BytesIO()
    savemat(stream, variables)
    return stream.getvalue()


def annotations(rows: list[dict[str, object]]) -> np.ndarray:
    """A struct array of one row, as MATLAB saves it."""
    array = np.empty((1, len(rows)), dtype=[(name, object) for name in rows[0]])
    for column, row in enumerate(rows):
        array[0, column] = tuple(row.values())
    return array


def class_names() -> np.ndarray:
    return np.array([CARS], dtype=object)


def _box(number: int) -> dict[str, object]:
    return {"bbox_x1": 1 + number, "bbox_y1": 2, "bbox_x2": 30, "bbox_y2": 20}


def cars() -> tuple[Files, bytes]:
    """The content of car_ims.tgz, and cars_annos.mat: four classes of four images, in the order of classes.
    The field `test` alternates."""
    files = {f"car_ims/{number:06d}.jpg": encode(pixels(number)) for number in range(1, 17)}
    rows = [
        {"relative_im_path": name}
        | _box(number)
        | {"class": np.uint8(1 + number // 4), "test": np.uint8(number % 2)}
        for number, name in enumerate(files)
    ]
    return files, mat(annotations=annotations(rows), class_names=class_names())


def cars_in_two_halves() -> tuple[Files, Files, Files, bytes]:
    """The same images as cars_train.tgz, cars_test.tgz, car_devkit.tgz and cars_test_annos_withlabels.mat:
    every class in both halves."""
    halves: dict[str, Files] = {"cars_train": {}, "cars_test": {}}
    rows: dict[str, list[dict[str, object]]] = {"cars_train": [], "cars_test": []}
    for number in range(16):
        half = "cars_test" if number % 2 else "cars_train"
        name = f"{len(halves[half]) + 1:05d}.jpg"
        halves[half][f"{half}/{name}"] = encode(pixels(number + 1))
        rows[half].append(_box(number) | {"class": np.uint8(1 + number // 4), "fname": name})
    without = [{key: value for key, value in row.items() if key != "class"} for row in rows["cars_test"]]
    devkit = {
        "devkit/cars_meta.mat": mat(class_names=class_names()),
        "devkit/cars_train_annos.mat": mat(annotations=annotations(rows["cars_train"])),
        "devkit/cars_test_annos.mat": mat(annotations=annotations(without)),
        "devkit/README.txt": b"This file gives documentation for the cars 196 dataset.\n",
    }
    return halves["cars_train"], halves["cars_test"], devkit, mat(annotations=annotations(rows["cars_test"]))


def sop(root: str = "Stanford_Online_Products/") -> Files:
    """Five classes; an exact copy within a class of the train list, and one across the lists."""
    rows = {
        "Ebay_train.txt": [
            (1, 1, 1, "bicycle_final/111085122871"),
            (2, 2, 1, "bicycle_final/111265328556"),
            (3, 3, 2, "cabinet_final/110715681235"),
        ],
        "Ebay_test.txt": [(4, 4, 12, "toaster_final/261215155238"), (5, 5, 12, "toaster_final/390751171234")],
    }
    files, image = {}, 0
    for name, classes in rows.items():
        lines = ["image_id class_id super_class_id path"]
        for _, label, group, path in classes:
            for number in range(2 if label % 2 else 3):
                image += 1
                lines.append(f"{image} {label} {group} {path}_{number}.JPG")
                files[f"{root}{path}_{number}.JPG"] = encode(pixels(image))
        files[f"{root}{name}"] = "\n".join([*lines, ""]).encode()
    files[f"{root}bicycle_final/111085122871_1.JPG"] = files[f"{root}bicycle_final/111085122871_0.JPG"]
    files[f"{root}toaster_final/261215155238_0.JPG"] = files[f"{root}bicycle_final/111085122871_0.JPG"]
    files[f"{root}Ebay_info.txt"] = b"image_id class_id super_class_id path\n"
    return files


def inshop(side: int = 256) -> tuple[Files, bytes]:
    """The content of img.zip, and the list: two train items, and two test items with two queries and a
    gallery image each. The images are padded to a square."""
    items = {
        "WOMEN/Dresses/id_00000002": ("train", "train"),
        "MEN/Denim/id_00000080": ("train", "train", "train"),
        "WOMEN/Tees_Tanks/id_00000001": ("query", "query", "gallery"),
        "MEN/Jackets_Vests/id_00000007": ("query", "gallery", "query"),
    }
    files, lines = {}, []
    for item, states in items.items():
        for number, state in enumerate(states, 1):
            name = f"img/{item}/{number:02d}_{number}_front.jpg"
            padded = np.full((side, side, 3), 255, np.uint8)
            padded[:, side // 4 : -side // 4] = pixels(len(files), side - 2 * (side // 4), side)
            files[name] = encode(padded)
            lines.append(f"{name.ljust(72)} {item.rpartition('/')[2]} {state}")
    return files, "\n".join([str(len(files)), "image_name item_id evaluation_status", *lines, ""]).encode()


def unpack(files: Mapping[str, bytes], folder: Path) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def tgz(files: Mapping[str, bytes], path: Path, mode: str = "w:gz") -> Path:
    """Writes the files in an order that is not sorted, as in published archives, with members for folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as archive:
        for folder in sorted({name.split("/", 1)[0] for name in files if "/" in name}):
            member = tarfile.TarInfo(folder)
            member.type = tarfile.DIRTYPE
            archive.addfile(member)
        for name in sorted(files, key=lambda name: name[::-1]):
            member = tarfile.TarInfo(name)
            member.size = len(files[name])
            archive.addfile(member, io.BytesIO(files[name]))
    return path


def zipped(files: Mapping[str, bytes], path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files, key=lambda name: name[::-1]):
            archive.writestr(name, files[name])
    return path
