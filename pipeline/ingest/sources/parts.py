"""The built-in set: photographs of creatures, drawn by a seeded generator, as JPEG files.

A class is one combination of part attributes (outline, markings, palette, limbs and their number, tail,
antennae). Classes come in families whose members differ from the first in one attribute. Test classes are
other combinations of values that train classes have too, so what is learned can transfer. Images of a class
vary in pose, place, scale, light, blur, noise and what lies in front; backgrounds and distractors come from
pools that all classes share, in the same colours and markings, so that neither a mean over the picture nor a
colour histogram tells much.
"""

import functools
import io
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image

from pipeline.config.dataset import PartsSource
from pipeline.ingest.collection import Collection, Picture
from pipeline.ingest.sources import creature as drawing
from pipeline.ingest.sources.creature import Look, Pose
from pipeline.runtime.errors import UserError

# How hard the set is. Shares are probabilities per image, pairs are ranges of a uniform draw.
FAMILY = 3  # classes that differ from the first of them in one attribute
TURN = 0.55  # rotation, radians either way
LENGTH = (0.54, 0.78)  # of the body, head to tail, as a share of the shorter side
OFFSET = 0.08  # of the creature from the middle, as a share of the shorter side
BEND = 0.22
SWING = 0.22  # of each limb, radians either way
COLOR_JITTER = 12.0  # standard deviation per channel and colour, of 255
DISTRACTORS = (3, 6)  # things around the creature
DISTRACTOR_SIZE = (0.16, 0.34)  # share of the shorter side
OCCLUDED = 0.30  # something lies over a part of the creature
GAIN = (0.68, 1.22)
CAST = 0.10  # per channel
SHADE = 0.30  # light falls off across the picture
BLUR = (0.0, 1.0)  # standard deviation, pixels
NOISE = (0.0, 9.0)  # standard deviation, of 255
QUALITY = (72, 95)  # of JPEG
GREY_EVERY, TURNED_EVERY = 61, 97  # one in so many images is a grey file; carries an EXIF rotation
BACKGROUNDS, THINGS = 24, 48  # sizes of the shared pools

COLORS: dict[str, drawing.Color] = {
    "rust": (196.0, 84.0, 50.0),
    "teal": (36.0, 132.0, 140.0),
    "cream": (226.0, 206.0, 150.0),
    "plum": (126.0, 62.0, 124.0),
    "moss": (112.0, 142.0, 62.0),
    "slate": (70.0, 80.0, 104.0),
}
Values = dict[str, tuple[Any, ...]]
ATTRIBUTES: Values = {
    "outline": drawing.OUTLINES,
    "markings": drawing.MARKINGS,
    "palette": tuple(
        f"{a}-{b}"
        for a, b in itertools.permutations(COLORS, 2)
        if (list(COLORS).index(a) + list(COLORS).index(b)) % 2
    ),
    "limbs": drawing.LIMBS,
    "pairs": (2, 3, 4),
    "tail": drawing.TAILS,
    "antennae": drawing.ANTENNAE,
}
FULL = 50  # misses after which a family counts as complete
_CLASSES, _IMAGE, _BACKGROUND, _THING = range(4)  # streams of random numbers


def collection(source: PartsSource, scratch: Path | None = None) -> Collection:
    """The pictures of the set. Raises UserError when the attributes do not give that many classes."""
    looks = classes(source)
    split = ["train"] * source.train_classes + ["test"] * source.test_classes
    pictures = [
        Picture(f"{split[c]}/{class_name(c)}/{image:04d}.jpg", class_name(c), split[c])
        for c in range(len(looks))
        for image in range(source.images_per_class)
    ]
    facts = {"classes": {class_name(c): look._asdict() for c, look in enumerate(looks)}}
    return Collection("the built-in set", pictures, Artist(source, looks), facts)


def class_name(number: int) -> str:
    return f"c{number:03d}"


class Artist:
    """Draws the file of a given name: each from its own random numbers, so in any order and any process."""

    def __init__(self, source: PartsSource, looks: list[Look]) -> None:
        self.source, self.looks = source, looks

    def __call__(self, name: str) -> bytes:
        _, folder, file = name.split("/")
        return photograph(self.source, self.looks, int(folder[1:]), int(file.removesuffix(".jpg")))


def classes(source: PartsSource) -> list[Look]:
    """Train classes, then test classes; all different, and every value of a test class occurs in a train
    class."""
    generator = _random(source.seed, _CLASSES)
    train = _families(generator, ATTRIBUTES, source.train_classes, set())
    seen = {
        name: tuple(v for v in values if v in {getattr(look, name) for look in train})
        for name, values in ATTRIBUTES.items()
    }
    test = _families(generator, seen, source.test_classes, set(train))
    for look in test:
        assert all(value in seen[name] for name, value in look._asdict().items())
    return train + test


def _families(generator: np.random.Generator, values: Values, count: int, taken: set[Look]) -> list[Look]:
    """`count` looks that are not `taken`. The first of each family goes through all values of every attribute
    in turn."""
    possible = (
        math.prod(map(len, values.values())) - len(taken)
    ) // 2  # half: drawing without looking for the last free one
    if count > possible:
        raise UserError(
            f"The built-in set has {possible:,} more classes of these attributes, not {count:,}.",
            "Lower train_classes or test_classes.",
        )
    size = min(FAMILY, max(1, count // 8))
    decks = [_deck(generator, options, -(-count // size)) for options in values.values()]
    variable = [name for name, options in values.items() if len(options) > 1]
    found: list[Look] = []
    taken = set(taken)
    refused = 0
    while len(found) < count:
        family, member = divmod(len(found), size)
        if member == 0 and refused == 0:
            look = Look(*(deck[family] for deck in decks))
        elif member == 0 or refused > FULL:
            look = Look(*(_pick(generator, options) for options in values.values()))
        else:
            first = found[family * size]
            name = variable[int(generator.integers(len(variable)))]
            look = first._replace(
                **{name: _pick(generator, [value for value in values[name] if value != getattr(first, name)])}
            )
        refused = refused + 1 if look in taken else 0
        if not refused:
            taken.add(look)
            found.append(look)
    return found


def _pick(generator: np.random.Generator, options: Sequence[Any]) -> Any:
    return options[int(generator.integers(len(options)))]


def _deck(generator: np.random.Generator, options: Sequence[Any], count: int) -> list[Any]:
    rounds = -(-count // len(options))
    return [options[position] for _ in range(rounds) for position in generator.permutation(len(options))][
        :count
    ]


def photograph(source: PartsSource, looks: list[Look], number: int, image: int) -> bytes:
    """The JPEG file of one image. Upright once its EXIF rotation, where it has one, is applied."""
    generator = _random(source.seed, _IMAGE, number, image)
    scene = Image.fromarray(draw(generator, source, looks[number]))
    position = number * source.images_per_class + image
    if position % GREY_EVERY == GREY_EVERY // 2:
        scene = scene.convert("L")
    exif = Image.Exif()
    if position % TURNED_EVERY == TURNED_EVERY // 4:
        orientation, back = (
            (6, Image.Transpose.ROTATE_90),
            (8, Image.Transpose.ROTATE_270),
            (3, Image.Transpose.ROTATE_180),
        )[position % 3]
        scene = scene.transpose(back)
        exif[0x0112] = orientation
    stream = io.BytesIO()
    scene.save(stream, "JPEG", quality=int(generator.integers(*QUALITY, endpoint=True)), exif=exif)
    return stream.getvalue()


def draw(generator: np.random.Generator, source: PartsSource, look: Look) -> UInt8[np.ndarray, "H W 3"]:
    """One scene with a creature of this look."""
    width, height = (
        int(side) for side in generator.integers(source.size[0], source.size[1], 2, endpoint=True)
    )
    short = min(width, height)
    scene = _ground(generator, source.seed, width, height)
    middle = np.array([width, height]) / 2 + generator.uniform(-OFFSET, OFFSET, 2) * short
    length = generator.uniform(*LENGTH) * short
    for _ in range(int(generator.integers(*DISTRACTORS, endpoint=True))):
        angle, distance = generator.uniform(0, 2 * np.pi), generator.uniform(0.30, 0.62)
        place = middle + distance * np.array([np.cos(angle) * width, np.sin(angle) * height])
        _lay_thing(scene, generator, source.seed, place, generator.uniform(*DISTRACTOR_SIZE) * short)
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
    _lay(scene, drawing.creature(look, pose), middle, length / 2, turn, mirrored=generator.random() < 0.5)
    if generator.random() < OCCLUDED:
        angle = generator.uniform(0, 2 * np.pi)
        place = middle + 0.55 * length * np.array([np.cos(angle), 0.7 * np.sin(angle)])
        _lay_thing(scene, generator, source.seed, place, generator.uniform(*DISTRACTOR_SIZE) * short)
    return _exposed(generator, scene)


def _exposed(generator: np.random.Generator, scene: Float[np.ndarray, "H W 3"]) -> UInt8[np.ndarray, "H W 3"]:
    """Light, lens and sensor."""
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


def _ground(generator: np.random.Generator, seed: int, width: int, height: int) -> Float[np.ndarray, "H W 3"]:
    pool = background(seed, int(generator.integers(BACKGROUNDS)))
    x, y = (int(generator.integers(pool.shape[0] - side + 1)) for side in (width, height))
    part = pool[y : y + height, x : x + width]
    return np.ascontiguousarray(
        part[:: 1 if generator.random() < 0.5 else -1, :: 1 if generator.random() < 0.5 else -1]
    )


@functools.lru_cache(maxsize=4 * BACKGROUNDS)
def background(seed: int, number: int, side: int = 192) -> Float[np.ndarray, "S S 3"]:
    """One of the shared grounds: two colours of the palettes, mixed by noise of several sizes, with grain."""
    generator = _random(seed, _BACKGROUND, number)
    first, second = (
        np.array(COLORS[str(name)], np.float32) for name in generator.choice(list(COLORS), 2, replace=False)
    )
    mix = np.zeros((side, side), np.float32)
    stretch = generator.uniform(0.4, 2.5)  # grass, ripples, gravel
    for cells, weight in ((3, 1.0), (8, 0.7), (24, 0.5), (64, 0.25)):
        coarse = generator.standard_normal((max(2, round(cells * stretch)), cells), np.float32)
        mix += weight * cv2.resize(coarse, (side, side), interpolation=cv2.INTER_CUBIC)
    mix = np.clip(0.5 + 0.45 * mix, 0, 1)[..., None]
    muted = 0.75 * (first * mix + second * (1 - mix)) + 0.25 * 120
    return np.clip(muted + generator.normal(0, 6, (side, side, 1)), 0, 255).astype(np.float32)


@functools.lru_cache(maxsize=4 * THINGS)
def thing(seed: int, number: int) -> drawing.Sprite:
    """One of the shared distractors."""
    generator = _random(seed, _THING, number)
    first, second = generator.choice(list(COLORS), 2, replace=False)
    shape = ("pebble", "leaf", "star", "square", "flower", "cap")[number % 6]
    marks = drawing.MARKINGS[int(generator.integers(len(drawing.MARKINGS)))]
    return drawing.thing(
        shape, marks, COLORS[str(first)], COLORS[str(second)], float(generator.uniform(-1, 1))
    )


def _lay_thing(
    scene: Float[np.ndarray, "H W 3"],
    generator: np.random.Generator,
    seed: int,
    place: np.ndarray,
    size: float,
) -> None:
    sprite = thing(seed, int(generator.integers(THINGS)))
    _lay(scene, sprite, place, size / 2, generator.uniform(0, 2 * np.pi), mirrored=generator.random() < 0.5)


def _lay(
    scene: Float[np.ndarray, "H W 3"],
    sprite: drawing.Sprite,
    place: np.ndarray,
    unit: float,
    turn: float,
    mirrored: bool,
) -> None:
    """Lays a sprite over the scene, in place: its origin at `place`, one of its units `unit` pixels long."""
    factor = unit / drawing.UNIT
    if factor < 0.5:  # bilinear reading would skip pixels
        small = max(1, round(drawing.PIXELS * max(factor, 0.02) * 1.5))
        sprite = cv2.resize(sprite, (small, small), interpolation=cv2.INTER_AREA)
        factor *= drawing.PIXELS / small
    cosine, sine, flip = factor * np.cos(turn), factor * np.sin(turn), -1.0 if mirrored else 1.0
    matrix = np.array([[flip * cosine, sine, 0.0], [-flip * sine, cosine, 0.0]])
    matrix[:, 2] = place - matrix[:, :2] @ np.array([sprite.shape[1] / 2 - 0.5, sprite.shape[0] / 2 - 0.5])
    laid = cv2.warpAffine(sprite, matrix, (scene.shape[1], scene.shape[0]), flags=cv2.INTER_LINEAR).astype(
        np.float32
    )
    scene *= 1 - laid[..., 3:] / 255
    scene += laid[..., :3]


def _jittered(generator: np.random.Generator, color: str) -> drawing.Color:
    return tuple(np.clip(np.array(COLORS[color]) + generator.normal(0, COLOR_JITTER, 3), 8, 247).tolist())


def _random(seed: int, *stream: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *stream])))
