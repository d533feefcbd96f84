"""The share of the weight of positions that lies on the object of an image, for data sets with known
object positions.

    share = sum_j max(w_j, 0) m_j / sum_j max(w_j, 0)        w_j: weight of position j
                                                             m_j: share of its cell that the object covers

Uniform weights give the share of the area that the object covers, `area`; the input of the network is the
image without the parts that the centre crop removes. Weights that lower a similarity count as zero. The mean
is over the images of a positions file, with the interval over classes of statistics/intervals.py.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from unseen.data.positions import Positions, read
from unseen.evaluation.analysis.plain import rounded
from unseen.evaluation.statistics.intervals import class_intervals

Mask = Callable[[str], np.ndarray]  # source of an image -> (H, W), the share of each pixel on the object
CONFIDENCE = 0.95


class Share(NamedTuple):
    """Of one kind of map. `low` and `high` are the interval of `share`; `area` is that of uniform weights."""

    map: str
    share: float
    low: float | None  # None: too few classes
    high: float | None
    area: float
    images: int


def object_shares(positions: Positions, mask: Mask) -> list[Share]:
    """The share of every kind of map that describes a whole embedding, the map of the method first.

    An image without a positive weight is excluded from the mean of that map.
    """
    masks: dict[str, np.ndarray] = {}
    values: dict[str, list[tuple[float, float, int]]] = {}
    for each in positions.maps:
        if each.detail or each.reference is not None:
            continue
        if each.source not in masks:
            masks[each.source] = np.asarray(mask(each.source), np.float64)
        weights = each.weights.astype(np.float64).clip(min=0)
        if weights.sum() > 0:
            cells = coverage(masks[each.source], each.region, *weights.shape)
            share = float((weights * cells).sum() / weights.sum())
            values.setdefault(each.name, []).append((share, float(cells.mean()), each.label))
    shares = []
    for name, rows in values.items():
        on_object, area = (np.array([row[column] for row in rows]) for column in (0, 1))
        labels = np.array([row[2] for row in rows], np.int64)
        ends = class_intervals(on_object[:, None], labels, CONFIDENCE)
        low, high = (None, None) if ends is None else (float(end[0]) for end in ends)
        mean, uniform = float(on_object.mean()), float(area.mean())
        shares.append(Share(name, mean, low, high, uniform, len(rows)))
    return shares


def coverage(
    mask: Float[np.ndarray, "h w"], region: tuple[float, float, float, float], height: int, width: int
) -> Float[np.ndarray, "H W"]:
    """The mean of `mask` within each of height x width equal cells of a region of the image.

    region: left, top, right, bottom as shares of the image.
    """
    left, top, right, bottom = region
    rows = _means(len(mask), np.linspace(top, bottom, height + 1))
    columns = _means(mask.shape[1], np.linspace(left, right, width + 1))
    cells: np.ndarray = rows @ mask @ columns.T
    return cells


def _means(pixels: int, edges: Float[np.ndarray, " n"]) -> Float[np.ndarray, "cells pixels"]:
    """The share of each pixel in each interval between two edges; rows sum to 1."""
    scaled = edges * pixels
    first = np.arange(pixels)
    lengths = np.minimum(scaled[1:, None], first + 1) - np.maximum(scaled[:-1, None], first)
    lengths = lengths.clip(min=0)
    share: np.ndarray = lengths / lengths.sum(1, keepdims=True)
    return share


def object_share_rows(root: Path, run: tuple[str, str, int], mask: Mask) -> list[dict[str, Any]]:
    """A row for each kind of map of a run (dataset, method, seed).

    Reads `root`/<dataset>/<method>/<seed>.arrow. Raises UserError for a missing file.
    """
    dataset, method, seed = run
    positions = read(root / dataset / method / f"{seed}.arrow")
    rows = []
    for share in object_shares(positions, mask):
        numbers = {name: rounded(value) for name, value in share._asdict().items()}
        rows.append({"dataset": dataset, "method": method, "seed": seed, **numbers})
    return rows
