"""The built-in set: images of creatures, drawn by a seeded generator, as JPEG files.

A class is one combination of part attributes (outline, markings, palette, limbs and their number, tail,
antennae). Classes form families whose members differ from the first member in one attribute. Test classes are
other combinations of values that also occur in train classes, so that learned features can transfer. Images
of a class vary in pose, position, scale, light, blur, noise and occlusion. Backgrounds and distractors come
from pools that all classes share, with the same colours and markings, so that neither the mean of a picture
nor a colour histogram identifies the class.
"""

import functools
import io
import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image

from unseen.data.ingest.collection import Collection, Picture
from unseen.data.ingest.settings import PartsSource
from unseen.data.ingest.sources import creature as drawing
from unseen.data.ingest.sources.creature import Look, Pose
from unseen.runtime.errors import UserError

# The difficulty of the set. Single shares are probabilities per image, pairs are ranges of a uniform
# distribution.
FAMILY = 3  # classes of a family, which differ from the first one in one attribute
TURN = 0.55  # largest rotation in either direction, radians
LENGTH = (0.54, 0.78)  # of the body, head to tail, as a share of the shorter side
OFFSET = 0.08  # of the creature from the centre, as a share of the shorter side
BEND = 0.22
SWING = 0.22  # largest rotation of each limb in either direction, radians
COLOR_JITTER = 12.0  # standard deviation per channel and colour, of 255
DISTRACTORS = (3, 6)  # number of distractors around the creature
DISTRACTOR_SIZE = (0.16, 0.34)  # share of the shorter side
OCCLUDED = 0.30  # a distractor covers a part of the creature
GAIN = (0.68, 1.22)  # factor on all channels
CAST = 0.10  # largest relative change per channel
SHADE = 0.30  # largest relative change of the light from the centre to the edge
BLUR = (0.0, 1.0)  # standard deviation, pixels
NOISE = (0.0, 9.0)  # standard deviation, of 255
QUALITY = (72, 95)  # of JPEG
GREY_EVERY = 61  # one image in 61 is a grey file
TURNED_EVERY = 97  # one image in 97 has an EXIF rotation
BACKGROUNDS, DISTRACTOR_POOL = 24, 48  # sizes of the shared pools

COLORS: dict[str, drawing.Color] = {
    "rust": (196.0, 84.0, 50.0),
    "teal": (36.0, 132.0, 140.0),
    "cream": (226.0, 206.0, 150.0),
    "plum": (126.0, 62.0, 124.0),
    "moss": (112.0, 142.0, 62.0),
    "slate": (70.0, 80.0, 104.0),
}
Values = dict[str, tuple[Any, ...]]
_COLOR_PAIRS = itertools.permutations(enumerate(COLORS), 2)
ATTRIBUTES: Values = {
    "outline": drawing.OUTLINES,
    "markings": drawing.MARKINGS,
    "palette": tuple(f"{body}-{marks}" for (i, body), (j, marks) in _COLOR_PAIRS if (i + j) % 2),
    "limbs": drawing.LIMBS,
    "pairs": (2, 3, 4),
    "tail": drawing.TAILS,
    "antennae": drawing.ANTENNAE,
}
MAX_REPEATS = 50  # repeated looks in a row, after which a family is complete
_CLASSES, _IMAGE, _BACKGROUND, _DISTRACTOR = range(4)  # streams of random numbers
_ORIENTATION_TAG = 0x0112
_ROTATIONS = (  # EXIF orientation, and the operation that it reverts
    (6, Image.Transpose.ROTATE_90),
    (8, Image.Transpose.ROTATE_270),
    (3, Image.Transpose.ROTATE_180),
)


def collection(source: PartsSource, scratch: Path | None = None) -> Collection:
    """The pictures of the set. Raises UserError if the attributes have too few combinations for the
    classes."""
    looks = classes(source)
    pictures = []
    for label in range(len(looks)):
        split, name = "train" if label < source.train_classes else "test", class_name(label)
        pictures += [
            Picture(f"{split}/{name}/{image:04d}.jpg", name, split)
            for image in range(source.images_per_class)
        ]
    facts = {"classes": {class_name(label): look._asdict() for label, look in enumerate(looks)}}
    return Collection("the built-in set", pictures, PartsReader(source, looks), facts)


def class_name(label: int) -> str:
    return f"c{label:03d}"


class PartsReader:
    """Draws the file of a given name. Each image has its own random generator, so the result does not depend
    on the order or the process."""

    def __init__(self, source: PartsSource, looks: list[Look]) -> None:
        self.source, self.looks = source, looks

    def __call__(self, name: str) -> bytes:
        _, folder, file = name.split("/")
        return photograph(self.source, self.looks, int(folder[1:]), int(file.removesuffix(".jpg")))


def classes(source: PartsSource) -> list[Look]:
    """Train classes, then test classes. All classes differ, and every value of a test class occurs in a train
    class."""
    generator = _random(source.seed, _CLASSES)
    train = _families(generator, ATTRIBUTES, source.train_classes, set())
    train_values: Values = {}
    for name, values in ATTRIBUTES.items():
        used = {getattr(look, name) for look in train}
        train_values[name] = tuple(value for value in values if value in used)
    test = _families(generator, train_values, source.test_classes, set(train))
    for look in test:
        assert all(value in train_values[name] for name, value in look._asdict().items())
    return train + test


def _families(generator: np.random.Generator, values: Values, count: int, excluded: set[Look]) -> list[Look]:
    """`count` looks that are not in `excluded`. The first members of the families go through all values of
    every attribute."""
    # Only half of the combinations may be used, so that random draws find a new combination quickly.
    possible = (math.prod(map(len, values.values())) - len(excluded)) // 2
    if count > possible:
        raise UserError(
            f"The built-in set has {possible:,} more classes of these attributes; required: {count:,}.",
            "Lower train_classes or test_classes.",
        )
    size = min(FAMILY, max(1, count // 8))
    sequences = [_balanced(generator, options, -(-count // size)) for options in values.values()]
    variable = [name for name, options in values.items() if len(options) > 1]
    looks: list[Look] = []
    used = set(excluded)
    repeats = 0
    while len(looks) < count:
        family, member = divmod(len(looks), size)
        if member == 0 and repeats == 0:
            look = Look(*(sequence[family] for sequence in sequences))
        elif member == 0 or repeats > MAX_REPEATS:
            look = Look(*(_pick(generator, options) for options in values.values()))
        else:
            first = looks[family * size]
            name = variable[int(generator.integers(len(variable)))]
            others = [value for value in values[name] if value != getattr(first, name)]
            look = first._replace(**{name: _pick(generator, others)})
        if look in used:
            repeats += 1
        else:
            repeats = 0
            used.add(look)
            looks.append(look)
    return looks


def _pick(generator: np.random.Generator, options: Sequence[Any]) -> Any:
    return options[int(generator.integers(len(options)))]


def _balanced(generator: np.random.Generator, options: Sequence[Any], count: int) -> list[Any]:
    """A random sequence of `count` options in which each option occurs equally often; the counts
    differ by at most one."""
    rounds = -(-count // len(options))
    positions = [position for _ in range(rounds) for position in generator.permutation(len(options))]
    return [options[position] for position in positions[:count]]


def photograph(source: PartsSource, looks: list[Look], label: int, image: int) -> bytes:
    """The JPEG file of one image of a class. Some files have an EXIF rotation, which decoding applies."""
    generator = _random(source.seed, _IMAGE, label, image)
    scene = Image.fromarray(draw(generator, source, looks[label]))
    position = label * source.images_per_class + image
    if position % GREY_EVERY == GREY_EVERY // 2:
        scene = scene.convert("L")
    exif = Image.Exif()
    if position % TURNED_EVERY == TURNED_EVERY // 4:
        orientation, inverse = _ROTATIONS[position % 3]
        scene = scene.transpose(inverse)
        exif[_ORIENTATION_TAG] = orientation
    stream = io.BytesIO()
    scene.save(stream, "JPEG", quality=int(generator.integers(*QUALITY, endpoint=True)), exif=exif)
    return stream.getvalue()


def creature_mask(source: PartsSource, looks: list[Look], name: str) -> Float[np.ndarray, "H W"]:
    """The share of each pixel of an upright image that its creature covers, without the parts that a
    distractor hides. `looks` are `classes(source)`. The image is composed again from its seed."""
    _, folder, file = name.split("/")
    label, image = int(folder[1:]), int(file.removesuffix(".jpg"))
    return _compose(_random(source.seed, _IMAGE, label, image), source, looks[label])[1]


def creature_masks(source: PartsSource) -> Callable[[str], Float[np.ndarray, "H W"]]:
    """`creature_mask` of an image of the set by its name. Each mask is computed once."""
    looks = classes(source)
    return functools.cache(lambda name: creature_mask(source, looks, name))


def draw(generator: np.random.Generator, source: PartsSource, look: Look) -> UInt8[np.ndarray, "H W 3"]:
    """One scene with a creature of this look."""
    return _expose(generator, _compose(generator, source, look)[0])


def _compose(
    generator: np.random.Generator, source: PartsSource, look: Look
) -> tuple[Float[np.ndarray, "H W 3"], Float[np.ndarray, "H W"]]:
    """A scene before light, blur and noise, and the share of each pixel that the creature covers."""
    width, height = generator.integers(source.size[0], source.size[1], 2, endpoint=True).tolist()
    shorter = min(width, height)
    scene = _background_crop(generator, source.seed, width, height)
    center = np.array([width, height]) / 2 + generator.uniform(-OFFSET, OFFSET, 2) * shorter
    length = generator.uniform(*LENGTH) * shorter
    for _ in range(int(generator.integers(*DISTRACTORS, endpoint=True))):
        angle, distance = generator.uniform(0, 2 * np.pi), generator.uniform(0.30, 0.62)
        position = center + distance * np.array([np.cos(angle) * width, np.sin(angle) * height])
        size = generator.uniform(*DISTRACTOR_SIZE) * shorter
        _paste_distractor(scene, generator, source.seed, position, size)
    body, marks = (_jittered(generator, name) for name in look.palette.split("-"))
    pose = Pose(
        body,
        marks,
        bend=generator.uniform(-BEND, BEND),
        girth=generator.uniform(0.88, 1.14),
        swing=generator.uniform(-SWING, SWING, (2, look.pairs)),
        phase=generator.uniform(-1.0, 1.0),
        light=generator.uniform(0, 2 * np.pi),
    )
    turn = generator.uniform(-TURN, TURN)
    mirrored = generator.random() < 0.5
    visible = _paste(scene, drawing.creature(look, pose), center, length / 2, turn, mirrored)
    if generator.random() < OCCLUDED:
        angle = generator.uniform(0, 2 * np.pi)
        position = center + 0.55 * length * np.array([np.cos(angle), 0.7 * np.sin(angle)])
        size = generator.uniform(*DISTRACTOR_SIZE) * shorter
        visible *= 1 - _paste_distractor(scene, generator, source.seed, position, size)
    return scene, visible


def _expose(generator: np.random.Generator, scene: Float[np.ndarray, "H W 3"]) -> UInt8[np.ndarray, "H W 3"]:
    """Applies light, blur and noise."""
    height, width = scene.shape[:2]
    angle = generator.uniform(0, 2 * np.pi)
    x, y = np.linspace(-1, 1, width, dtype=np.float32), np.linspace(-1, 1, height, dtype=np.float32)[:, None]
    shade = 1 + generator.uniform(0, SHADE) * (np.cos(angle) * x + np.sin(angle) * y)
    gain = generator.uniform(*GAIN) * generator.uniform(1 - CAST, 1 + CAST, 3)
    scene = scene * shade[..., None] * gain.astype(np.float32)
    sigma = generator.uniform(*BLUR)
    if sigma > 0.2:
        scene = cv2.GaussianBlur(scene, (0, 0), sigma)
    scene += generator.uniform(*NOISE) * generator.standard_normal(scene.shape, np.float32)
    return np.clip(scene + 0.5, 0, 255).astype(np.uint8)


def _background_crop(
    generator: np.random.Generator, seed: int, width: int, height: int
) -> Float[np.ndarray, "H W 3"]:
    """A random part of a background, randomly mirrored."""
    image = background(seed, int(generator.integers(BACKGROUNDS)))
    x, y = (int(generator.integers(image.shape[0] - side + 1)) for side in (width, height))
    step_y, step_x = (1 if generator.random() < 0.5 else -1 for _ in range(2))
    return np.ascontiguousarray(image[y : y + height, x : x + width][::step_y, ::step_x])


@functools.lru_cache(maxsize=4 * BACKGROUNDS)
def background(seed: int, number: int, side: int = 192) -> Float[np.ndarray, "S S 3"]:
    """One of the shared backgrounds: two colours of the palettes, mixed by noise of several scales, with
    grain."""
    generator = _random(seed, _BACKGROUND, number)
    names = generator.choice(list(COLORS), 2, replace=False)
    first, second = (np.array(COLORS[str(name)], np.float32) for name in names)
    mix = np.zeros((side, side), np.float32)
    stretch = generator.uniform(0.4, 2.5)  # height / width of the noise: grass, ripples, gravel
    for cells, weight in ((3, 1.0), (8, 0.7), (24, 0.5), (64, 0.25)):
        coarse = generator.standard_normal((max(2, round(cells * stretch)), cells), np.float32)
        mix += weight * cv2.resize(coarse, (side, side), interpolation=cv2.INTER_CUBIC)
    mix = np.clip(0.5 + 0.45 * mix, 0, 1)[..., None]
    muted = 0.75 * (first * mix + second * (1 - mix)) + 0.25 * 120
    return np.clip(muted + generator.normal(0, 6, (side, side, 1)), 0, 255).astype(np.float32)


@functools.lru_cache(maxsize=4 * DISTRACTOR_POOL)
def distractor(seed: int, number: int) -> drawing.Sprite:
    """One of the shared distractors."""
    generator = _random(seed, _DISTRACTOR, number)
    first, second = generator.choice(list(COLORS), 2, replace=False)
    shape = ("pebble", "leaf", "star", "square", "flower", "cap")[number % 6]
    marks = drawing.MARKINGS[int(generator.integers(len(drawing.MARKINGS)))]
    phase = float(generator.uniform(-1, 1))
    return drawing.distractor(shape, marks, COLORS[str(first)], COLORS[str(second)], phase)


def _paste_distractor(
    scene: Float[np.ndarray, "H W 3"],
    generator: np.random.Generator,
    seed: int,
    position: np.ndarray,
    size: float,
) -> Float[np.ndarray, "H W"]:
    """Blends a random distractor into the scene, as `_paste` does."""
    sprite = distractor(seed, int(generator.integers(DISTRACTOR_POOL)))
    turn = generator.uniform(0, 2 * np.pi)
    return _paste(scene, sprite, position, size / 2, turn, mirrored=generator.random() < 0.5)


def _paste(
    scene: Float[np.ndarray, "H W 3"],
    sprite: drawing.Sprite,
    position: np.ndarray,
    unit: float,
    turn: float,
    mirrored: bool,
) -> Float[np.ndarray, "H W"]:
    """Blends a sprite into the scene, in place, and returns the share of each pixel that it covers. The
    origin of the sprite is at `position`; one of its units is `unit` pixels long."""
    factor = unit / drawing.UNIT
    if factor < 0.5:  # bilinear interpolation would skip pixels
        side = max(1, round(drawing.PIXELS * max(factor, 0.02) * 1.5))
        sprite = cv2.resize(sprite, (side, side), interpolation=cv2.INTER_AREA)
        factor *= drawing.PIXELS / side
    cosine, sine, flip = factor * np.cos(turn), factor * np.sin(turn), -1.0 if mirrored else 1.0
    matrix = np.array([[flip * cosine, sine, 0.0], [-flip * sine, cosine, 0.0]])
    origin = np.array([sprite.shape[1] / 2 - 0.5, sprite.shape[0] / 2 - 0.5])
    matrix[:, 2] = position - matrix[:, :2] @ origin
    warped = cv2.warpAffine(sprite, matrix, (scene.shape[1], scene.shape[0]), flags=cv2.INTER_LINEAR)
    left, top, columns, rows = cv2.boundingRect(warped[..., 3])
    box = np.s_[top : top + rows, left : left + columns]
    layer = warped[box].astype(np.float32)
    scene[box] *= 1 - layer[..., 3:] / 255
    scene[box] += layer[..., :3]
    return warped[..., 3] / np.float32(255)


def _jittered(generator: np.random.Generator, color: str) -> drawing.Color:
    return tuple(np.clip(np.array(COLORS[color]) + generator.normal(0, COLOR_JITTER, 3), 8, 247).tolist())


def _random(seed: int, *stream: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *stream])))
