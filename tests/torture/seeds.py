"""Small valid files of each kind, which the campaign of mutations damages. Equal for equal seeds."""

import gzip
import io
import pickle
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pillow_heif
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from ruamel.yaml import YAML
from safetensors.torch import save as safetensors

from tests.torture.readers import IDENTITY
from tests.torture.results import ROOT
from unseen.data.embeddings import write as write_embeddings
from unseen.data.positions import Match, PositionMap, Positions, QueryMatches
from unseen.data.positions import write as write_positions
from unseen.data.shard_writer import ShardWriter
from unseen.evaluation.metrics import Rows, per_query
from unseen.evaluation.tables import neighbour_table, query_table, write_table
from unseen.frozen.network import Network
from unseen.frozen.store import MAPS, VECTORS
from unseen.networks.published_network import timm
from unseen.training.checkpoint import Checkpoints

SIDE = 24  # pixels
DIM = 6
VECTORS_ROWS = [f"{row:064x}" for row in range(4)]  # sha256 of pictures
MAPS_ROWS = ["0", "1"]


def _pixels(seed: int) -> Image.Image:
    squares = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), np.uint8)
    return Image.fromarray(squares).resize((SIDE, SIDE - 3), Image.Resampling.BICUBIC)


def _saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def images() -> list[bytes]:
    """Each format that is read, in the modes and options that have code of their own."""
    picture = _pixels(0)
    exif = Image.Exif()
    exif[0x0112] = 6
    palette = picture.convert("P", palette=Image.Palette.ADAPTIVE, colors=16)
    transparent = picture.copy()
    transparent.putalpha(100)
    sixteen = Image.fromarray(np.asarray(picture.convert("L"), np.uint16) * 257)
    jpegs = [
        _saved(picture, "JPEG"),
        _saved(picture, "JPEG", progressive=True, exif=exif),
        _saved(picture, "JPEG", subsampling=0, restart_marker_rows=1, exif=exif),
        _saved(picture.convert("L"), "JPEG", optimize=True),
        _saved(picture.convert("CMYK"), "JPEG"),
    ]
    pngs = [
        *(_saved(image, "PNG") for image in (picture, palette, transparent, sixteen, picture.convert("1"))),
        _saved(picture.convert("LA"), "PNG"),
        _saved(palette, "PNG", transparency=3),
        _saved(picture, "PNG", exif=exif),
    ]
    others = [
        _saved(picture, "WEBP"),
        _saved(transparent, "WEBP", lossless=True, exif=exif),
        _saved(picture, "WEBP", save_all=True, append_images=[_pixels(1)]),
        _saved(picture, "AVIF", speed=10),
        *(_saved(image, "BMP") for image in (picture, palette, picture.convert("1"))),
        _saved(palette, "GIF", transparency=3),
        _saved(palette, "GIF", save_all=True, append_images=[_pixels(1).convert("P")]),
        *(
            _saved(picture, "TIFF", compression=name)
            for name in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg")
        ),
        _saved(sixteen, "TIFF", exif=exif),
        _saved(picture.convert("1"), "TIFF", compression="group4"),
        *(_saved(image, "PPM") for image in (picture, picture.convert("L"), picture.convert("1"), sixteen)),
    ]
    pillow_heif.register_heif_opener(thumbnails=False)
    return jpegs + pngs + others + [_saved(image, "HEIF", quality=50) for image in (picture, transparent)]


def damaged_images() -> list[bytes]:
    """Pictures that every reader refuses: with too many pixels, and without the end of its scan."""
    side = 13_378  # the smallest square above the limit
    jpeg = _saved(_pixels(0), "JPEG")
    return [_saved(Image.new("1", (side, side)), "PNG"), jpeg[: len(jpeg) * 3 // 4]]


def damaged_archives() -> list[bytes]:
    """A zip archive whose member has another checksum than its bytes."""
    content = bytearray(archives()[0])
    content[content.index(b"\xff\xd9")] ^= 1
    return [bytes(content)]


def archives() -> list[bytes]:
    """Zip and tar archives of two classes of pictures."""
    members = {f"photos/{name}/{row}.jpg": _saved(_pixels(row), "JPEG") for name in "ab" for row in range(2)}
    members["photos/list.csv"] = b"path,label\na/0.jpg,a\n"
    contents = []
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", method) as archive:
            for name, content in members.items():
                archive.writestr(zipfile.ZipInfo(name), content, method)
        contents.append(stream.getvalue())
    for kind in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w", format=kind) as archive:
            for name, content in members.items():
                info = tarfile.TarInfo(f"{name}é" if kind == tarfile.PAX_FORMAT else name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        plain = stream.getvalue()
        contents += [plain, gzip.compress(plain, mtime=0)]
    return contents


def params_files() -> list[bytes]:
    """params.yaml: the whole file, and small ones with one of its blocks each; the others are empty."""
    text = (ROOT / "params.yaml").read_text(encoding="utf-8")
    yaml = YAML(typ="safe", pure=True)
    tree = yaml.load(text)
    contents = [text.encode()]
    for block in tree:
        stream = io.BytesIO()
        yaml.dump({**{key: {} for key in tree}, "run": tree["run"], block: tree[block]}, stream)
        contents.append(stream.getvalue())
    return contents


def tables() -> list[bytes]:
    """The CSV of a folder of images, in its forms."""
    return [
        b"path,label\na.jpg,red\nb.jpg,blue\n",
        b"path,label,split,is_query,is_gallery\r\na.jpg,red,train,,\r\nb.jpg,blue,test,yes,no\r\n",
        '\ufeffpath,label,note\n"a.jpg","ro,t","x\ny"\nb.jpg,grün,\n'.encode(),
    ]


def _weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "layer.weight": torch.randn(4, 3, generator=generator),
        "layer.bias": torch.zeros(4),
        "norm.num_batches_tracked": torch.tensor(3),
    }


def _torch_file(content: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(content, stream, **options)
    return stream.getvalue()


def pth_files() -> list[bytes]:
    """Weights of torch: both containers, with and without the wrapper of a training."""
    return [
        _torch_file(_weights()),
        _torch_file({"state_dict": {f"module.{name}": value for name, value in _weights().items()}}),
        _torch_file(_weights(), _use_new_zipfile_serialization=False),
    ]


def safetensors_files() -> list[bytes]:
    return [safetensors(_weights())]


def pickles() -> list[bytes]:
    """Ground truth of landmarks, in each protocol of pickle."""
    value = {
        "imlist": ["a", "b"],
        "qimlist": ["c"],
        "gnd": [{"bbx": [1.0, 2.0, 3.0, 4.0], "easy": np.arange(3), "hard": [], "junk": [2]}],
    }
    return [pickle.dumps(value, protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]


def training_checkpoints(folder: Path) -> list[bytes]:
    Checkpoints(folder, IDENTITY).save(1, {"method": _weights(), "rows": [{"loss": 1.0}]}, {})
    return [(folder / "00000001.pt").read_bytes()]


def npy_files() -> list[bytes]:
    """Four vectors."""
    contents = []
    for kind in (np.float32, np.float16, np.int64):
        stream = io.BytesIO()
        np.save(stream, np.eye(4, dtype=kind))
        contents.append(stream.getvalue())
    return contents


def vector_tables(folder: Path, suffix: str) -> list[bytes]:
    """Four vectors with labels as Parquet or Arrow."""
    rows = np.eye(4, dtype=np.float32)
    vectors = pa.array(rows.tolist(), pa.list_(pa.float32()))
    table = pa.table({"label": ["a", "a", "b", "b"], "embedding": vectors, "row_id": [3, 1, 2, 0]})
    path = folder / f"vectors{suffix}"
    if suffix == ".parquet":
        pq.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    return [path.read_bytes()]


def network(folder: Path) -> Network:
    """A small network of timm with drawn weights."""
    path = folder / "network.safetensors"
    path.write_bytes(safetensors(timm.create_model("test_resnet", num_classes=0).state_dict()))
    return Network("test_resnet.r160_in1k", path, 32)


def unfinished_vectors(folder: Path) -> list[bytes]:
    path = folder / "unfinished.parquet"
    VECTORS.write(path, VECTORS_ROWS, np.eye(4, DIM, dtype=np.float32))
    return [path.read_bytes()]


def unfinished_maps(folder: Path) -> list[bytes]:
    path = folder / "unfinished.arrow"
    MAPS.write(path, MAPS_ROWS, np.eye(2, DIM, dtype=np.float16))
    return [path.read_bytes()]


def query_tables(folder: Path) -> list[bytes]:
    rows = Rows(np.arange(8), np.arange(8) // 2, np.eye(8, 3, dtype=np.float32))
    result = per_query(rows, rows, (1, 2), keep=2)
    contents = []
    for table in (query_table(result), neighbour_table(result)):
        write_table(folder / "queries.parquet", table)
        contents.append((folder / "queries.parquet").read_bytes())
    return contents


def embedding_files(folder: Path) -> list[bytes]:
    rows = np.eye(4, dtype=np.float32)
    path = folder / "test.arrow"
    write_embeddings(path, np.arange(4), np.array([0, 0, 1, 1]), rows)
    return [path.read_bytes()]


def positions_files(folder: Path) -> list[bytes]:
    region, weights = (0.0, 0.0, 1.0, 1.0), np.eye(2, dtype=np.float32)
    maps = (
        PositionMap(3, 1, "a/3.png", region, "contribution", weights, reference=4),
        PositionMap(4, 1, "a/4.png", region, "mass", weights, prototype=np.eye(2, dtype=np.int32)),
        PositionMap(4, 1, "a/4.png", region, "point 1", weights, detail=True, point=(0.5, 0.25)),
    )
    path = folder / "0.arrow"
    write_positions(path, Positions(maps, (QueryMatches(3, Match(4, 0.5), None),)))
    return [path.read_bytes()]


def write_shards(folder: Path) -> None:
    """Eight pictures of four classes in two shards."""
    folder.mkdir()
    with ShardWriter(folder, ["a", "b", "c", "d"], shard_bytes=16_000) as writer:
        for row in range(8):
            split = "train" if row < 4 else "test"
            content = _saved(_pixels(row), "PNG")
            writer.add(content, row // 2, split, f"{row}.png", SIDE, SIDE - 3, group=f"g{row % 2}")
        writer.finish({"dataset": "drawn"})


def files_of(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The files below a folder, by name."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path.relative_to(folder).as_posix(), path.read_bytes()
