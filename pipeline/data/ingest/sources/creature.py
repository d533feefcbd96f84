"""Draws the objects of the built-in set as sprites: creatures, which consist of parts, and distractors.

A creature is drawn in its own plane: head at x = +1, tail at x = -1, body between y = -h(x) and y = +h(x). A
pose bends that plane (y -> y + bend x^2) and rotates the limbs. Rotation, mirroring and scale are applied
when the sprite is pasted into a scene.
"""

from typing import NamedTuple

import cv2
import numpy as np
from jaxtyping import Float, UInt8

HALF = 1.8  # the sprite covers x and y from -HALF to +HALF
# Side of a sprite. It is about twice the resolution of the finest scene, so that pasting averages pixels.
PIXELS = 216
UNIT = PIXELS / (2 * HALF)  # pixels per unit of the plane
_FRACTION = 4  # fractional bits of the coordinates for cv2

OUTLINES = ("oval", "drop", "diamond", "box", "waisted", "lobed")
MARKINGS = ("bands", "stripes", "spots", "rings", "chevrons", "saddle")
LIMBS = ("legs", "hooks", "paddles", "spikes")
TAILS = ("bare", "fork", "ball", "fan")
ANTENNAE = ("none", "straight", "clubbed")


Color = tuple[float, ...]  # channels from 0 to 255


class Look(NamedTuple):
    """The attributes of a class."""

    outline: str
    markings: str
    palette: str  # "body-marks"; the same two colours make two palettes
    limbs: str
    pairs: int  # of limbs
    tail: str
    antennae: str


class Pose(NamedTuple):
    """The values that differ between the sprites of one class. Colours are RGB, 0 to 255."""

    body: Color
    marks: Color
    bend: float
    girth: float  # factor on the body's width
    swing: Float[np.ndarray, "side pairs"]  # radians added to each limb's direction
    phase: float  # of the markings
    light: float  # direction from which the body is lit, radians


Sprite = UInt8[np.ndarray, "S S 4"]  # RGB times alpha, alpha

_axis = (np.arange(PIXELS, dtype=np.float32) + 0.5) / UNIT - HALF
_X, _Y = np.meshgrid(_axis, -_axis)


def half_width(outline: str, x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """h(x) for -1 <= x <= 1."""
    round_end = np.sqrt(np.clip(1 - x * x, 0, None))
    return {
        "oval": lambda: 0.52 * round_end,
        "drop": lambda: 0.36 * round_end * (1.15 + x),
        "diamond": lambda: 0.66 * (1 - np.abs(x)) ** 0.8,
        "box": lambda: 0.44 * np.clip(1 - x**8, 0, None) ** 0.25,
        "waisted": lambda: 0.54 * round_end * (1 - 0.62 * np.exp(-((x / 0.26) ** 2))),
        "lobed": lambda: 0.50 * round_end**0.7 * (0.62 + 0.38 * np.abs(np.cos(1.5 * np.pi * x))),
    }[outline]()


def markings(
    kind: str, u: Float[np.ndarray, "H W"], v: Float[np.ndarray, "H W"], phase: float
) -> Float[np.ndarray, "H W"]:
    """The share of the marking colour at (u, v) of the body's plane, 0 to 1, with soft edges."""
    if kind == "bands":
        wave = np.cos(9.5 * u + phase)
    elif kind == "stripes":
        wave = np.cos(15.0 * v + 0.5 * phase)
    elif kind == "spots":
        wave = 2.2 * np.cos(7.5 * u + phase) * np.cos(7.5 * v + 0.6 * phase) - 0.55
    elif kind == "rings":
        wave = np.cos(13.0 * np.hypot(u, 1.3 * v) + 0.6 * phase)
    elif kind == "chevrons":
        wave = np.cos(9.5 * (u + 0.9 * np.abs(v)) + phase)
    else:  # saddle: one broad patch
        wave = 6.0 * (0.34 - np.abs(u + 0.06 * phase))
    return np.clip(0.5 + 3.0 * wave, 0, 1)


def creature(look: Look, pose: Pose) -> Sprite:
    """The sprite of one image of a class."""
    canvas = np.zeros((PIXELS, PIXELS, 4), np.uint8)
    dark = tuple(0.45 * value for value in pose.body)
    limb_color = tuple(0.8 * value for value in pose.marks)

    def limb_root(x: float, side: float) -> tuple[float, float]:
        """A point slightly inside the outline."""
        y = side * 0.86 * pose.girth * float(half_width(look.outline, np.array([x]))[0])
        return x, y + pose.bend * x * x

    for row, side in enumerate((1.0, -1.0)):
        for number, x in enumerate(np.linspace(-0.62, 0.5, look.pairs)):
            direction = side * (np.pi / 2 + 0.30 - 0.55 * (x + 0.1)) + side * float(pose.swing[row, number])
            _limb(canvas, look.limbs, limb_root(float(x), side), direction, side, limb_color)
    _tail(canvas, look.tail, (-0.93, pose.bend * 0.9), limb_color)
    _antennae(canvas, look.antennae, (0.88, pose.bend * 0.8), dark)

    x = np.linspace(-1, 1, 61)
    width = pose.girth * half_width(look.outline, x)
    middle = pose.bend * x * x
    rim = np.concatenate([np.stack([x, middle + width], 1), np.stack([x, middle - width], 1)[::-1]])
    inside = np.zeros((PIXELS, PIXELS), np.uint8)
    _fill(inside, rim, (255.0,))
    left, top, columns, rows = cv2.boundingRect(inside)
    box = np.s_[top : top + rows, left : left + columns]
    u = _X[box]
    v = (_Y[box] - pose.bend * u * u) / pose.girth
    share = markings(look.markings, u, v, pose.phase)[..., None]
    lit = 1 + 0.28 * (np.cos(pose.light) * u + np.sin(pose.light) * 1.6 * v)[..., None]
    body, marks = np.array(pose.body, np.float32), np.array(pose.marks, np.float32)
    skin = np.clip((body * (1 - share) + marks * share) * lit, 0, 255)
    alpha = (inside[box] / np.float32(255))[..., None]
    layer = np.concatenate([skin, np.full_like(share, 255)], axis=2)
    canvas[box] = (canvas[box] * (1 - alpha) + layer * alpha + 0.5).astype(np.uint8)
    _line(canvas, rim, dark, 0.045, closed=True)
    _disc(canvas, (0.74, pose.bend * 0.55 + 0.10), 0.065, (20.0, 20.0, 20.0))
    return canvas


def distractor(shape: str, marks: str, body: Color, second: Color, phase: float) -> Sprite:
    """The sprite of a distractor: another shape with the colours and markings of a creature."""
    turn = np.linspace(0, 2 * np.pi, 72, endpoint=False)
    radius = {
        "pebble": 0.75 + 0.08 * np.cos(2 * turn + phase) + 0.05 * np.cos(3 * turn),
        "leaf": 0.95 * np.abs(np.cos(turn)) ** 1.6 + 0.30,
        "star": 0.70 + 0.28 * np.cos(5 * turn),
        "square": 0.75 / np.maximum(np.abs(np.cos(turn)), np.abs(np.sin(turn))),
        "flower": 0.75 + 0.2 * np.cos(7 * turn),
        "cap": np.where(np.sin(turn) > 0, 0.95, 0.35),
    }[shape]
    rim = np.stack([radius * np.cos(turn), radius * np.sin(turn)], 1)
    inside = np.zeros((PIXELS, PIXELS), np.uint8)
    _fill(inside, rim, (255.0,))
    share = markings(marks, _X, _Y, phase)[..., None]
    surface = np.array(body, np.float32) * (1 - share) + np.array(second, np.float32) * share
    layer = np.concatenate([surface, np.full_like(share, 255)], axis=2)
    canvas = (layer * (inside / np.float32(255))[..., None] + 0.5).astype(np.uint8)
    _line(canvas, rim, tuple(0.45 * value for value in body), 0.045, closed=True)
    return canvas


def _limb(
    canvas: Sprite, kind: str, root: tuple[float, float], direction: float, side: float, color: Color
) -> None:
    ahead = np.array([np.cos(direction), np.sin(direction)])
    across = np.array([-ahead[1], ahead[0]])
    start = np.array(root)
    if kind == "legs":
        _line(canvas, np.stack([start, start + 0.62 * ahead]), color, 0.09)
    elif kind == "hooks":
        knee = start + 0.36 * ahead
        foot = np.array([np.cos(direction - side * 1.5), np.sin(direction - side * 1.5)])
        _line(canvas, np.stack([start, knee, knee + 0.34 * foot]), color, 0.09)
    elif kind == "paddles":
        angle = np.linspace(0, 2 * np.pi, 24, endpoint=False)
        rim = start + np.outer(0.30 + 0.33 * np.cos(angle), ahead) + np.outer(0.14 * np.sin(angle), across)
        _fill(canvas, rim, (*color, 255.0))
    else:
        corners = np.stack([start - 0.16 * across, start + 0.44 * ahead, start + 0.16 * across])
        _fill(canvas, corners, (*color, 255.0))


def _tail(canvas: Sprite, kind: str, root: tuple[float, float], color: Color) -> None:
    x, y = root
    if kind == "fork":
        for side in (1, -1):
            prong = np.array([[x, y], [x - 0.2, y + side * 0.05], [x - 0.55, y + side * 0.32]])
            _line(canvas, prong, color, 0.10)
    elif kind == "ball":
        _line(canvas, np.array([[x, y], [x - 0.4, y]]), color, 0.09)
        _disc(canvas, (x - 0.45, y), 0.17, color)
    elif kind == "fan":
        corners = np.array([[x + 0.1, y], [x - 0.45, y + 0.36], [x - 0.36, y], [x - 0.45, y - 0.36]])
        _fill(canvas, corners, (*color, 255.0))


def _antennae(canvas: Sprite, kind: str, root: tuple[float, float], color: Color) -> None:
    if kind == "none":
        return
    x, y = root
    for side in (1, -1):
        tip = (x + 0.48, y + side * 0.36)
        _line(canvas, np.array([[x, y + side * 0.06], tip]), color, 0.07)
        if kind == "clubbed":
            _disc(canvas, tip, 0.12, color)


def _pixels(points: Float[np.ndarray, "n 2"]) -> np.ndarray:
    """Coordinates of the sprite for cv2, with `_FRACTION` fractional bits."""
    shifted = np.stack([points[:, 0] + HALF, HALF - points[:, 1]], 1) * UNIT - 0.5
    return np.round(shifted * 2**_FRACTION).astype(np.int32)


def _fill(canvas: np.ndarray, points: Float[np.ndarray, "n 2"], color: Color) -> None:
    cv2.fillPoly(canvas, [_pixels(points)], color, cv2.LINE_AA, _FRACTION)


def _line(
    canvas: Sprite, points: Float[np.ndarray, "n 2"], color: Color, thickness: float, closed: bool = False
) -> None:
    pixels = max(1, round(thickness * UNIT))
    cv2.polylines(canvas, [_pixels(points)], closed, (*color, 255.0), pixels, cv2.LINE_AA, _FRACTION)


def _disc(canvas: Sprite, center: tuple[float, float], radius: float, color: Color) -> None:
    (x, y) = _pixels(np.array([center]))[0].tolist()
    scaled_radius = round(radius * UNIT * 2**_FRACTION)
    cv2.circle(canvas, (x, y), scaled_radius, (*color, 255.0), cv2.FILLED, cv2.LINE_AA, _FRACTION)
