"""The embedding of some test classes in two dimensions: a point per image, its picture beside the pointer,
and the convex hull of each class (GSP fig. 3a).
"""

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.spatial import ConvexHull

from unseen.report.dataset import DataSet
from unseen.report.pictures import data_uri
from unseen.report.svg import SERIES, SMALL, Chart, inline, panel, plain, style_of
from unseen.report.words import percent

SIDE, MARGIN, PICTURE = 260, 8, 56  # of a map, around its points, and of a picture; pixels


def content(dataset: DataSet) -> dict[str, Any] | None:
    """The maps of the first seed of each method. None without maps, as for a landmark set."""
    curves = {name: curve["map"] for name, curve in dataset.analysis.first_curves.items() if curve.get("map")}
    if not curves:
        return None
    shards = dataset.shards
    short = dataset.labels
    first = next(iter(curves.values()))
    labels = list(dict.fromkeys(first["labels"]))
    colours = {label: number % len(SERIES) for number, label in enumerate(labels)}
    maps = []
    for method in dataset.methods:
        if method.name in curves:
            curve = curves[method.name]
            points = [
                {"row": row, "x": x, "y": y, "colour": colours[label], "title": f"{short[label]}: {source}"}
                for row, label, (x, y) in zip(
                    curve["rows"], curve["labels"], places(curve["x"], curve["y"]), strict=True
                )
                for source in [shards.source(row)]
            ]
            maps.append(
                {
                    "method": method,
                    "points": points,
                    "hulls": hulls([(point["x"], point["y"], point["colour"]) for point in points]),
                    "variance": [percent(v) for v in curve["variance"]],
                }
            )
    rows = sorted({row for curve in curves.values() for row in curve["rows"]})
    return {
        "maps": maps,
        "side": SIDE,
        "picture": PICTURE,
        "images": {row: data_uri(shards.image(row), PICTURE) for row in rows},
        "classes": [{"colour": colours[label], "name": short[label]} for label in labels],
    }


def figure(method: str, curve: dict[str, Any], classes: list[str], name: str) -> Chart:
    """The map of a method with the points and the convex hull of each class. curve: `map` of a run. classes:
    the name of each label."""
    with panel(plain(method), SMALL, SMALL) as (figure, axes):
        labels = np.asarray(curve["labels"])
        plane = np.stack([curve["x"], curve["y"]], axis=1)
        for position, label in enumerate(dict.fromkeys(labels.tolist())):
            colour, _, marker = style_of(position)
            points = plane[labels == label]
            axes.plot(
                *points.T, linestyle="none", marker=marker, markersize=4, color=colour,
                label=plain(classes[label]),
            )  # fmt: skip
            corners = hull(points)
            if corners is not None:
                axes.fill(*corners.T, color=colour, alpha=0.15, linewidth=0)
        axes.set_aspect("equal")
        axes.set(xticks=[], yticks=[])
        figure.legend(loc="outside lower center", ncols=2)
        return inline(figure, name, f"Map of the embedding of {method}")


def hull(points: Float[np.ndarray, "P 2"]) -> Float[np.ndarray, "corners 2"] | None:
    """The corners of the convex hull; None for points on a line."""
    if np.linalg.matrix_rank(points - points[0]) < 2:
        return None
    corners: np.ndarray = points[ConvexHull(points).vertices]
    return corners


def hulls(points: list[tuple[float, float, int]]) -> list[dict[str, Any]]:
    """The convex hull of the points (x, y, colour) of each colour, as corners of an SVG polygon. A colour
    whose points are on a line has none."""
    drawn = []
    for colour in dict.fromkeys(point[2] for point in points):
        corners = hull(np.array([point[:2] for point in points if point[2] == colour]))
        if corners is None:
            continue
        drawn.append({"colour": colour, "corners": " ".join(f"{x:g},{y:g}" for x, y in corners)})
    return drawn


def places(x: list[float], y: list[float]) -> list[tuple[float, float]]:
    """Pixels of the points from the left and from the top, with one scale for both axes."""
    scale = (SIDE - 2 * MARGIN) / max(max(x) - min(x), max(y) - min(y), 1e-12)
    middle_x, middle_y = (max(x) + min(x)) / 2, (max(y) + min(y)) / 2
    return [
        (round(SIDE / 2 + scale * (a - middle_x), 1), round(SIDE / 2 - scale * (b - middle_y), 1))
        for a, b in zip(x, y, strict=True)
    ]
