"""What a figure of matplotlib shows: its marks, their places in the units of the axes and their styles."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

FEW = 12  # numbers of a mark that are all stated


@contextmanager
def recorded() -> Iterator[list[Figure]]:
    """The figures that are written within, each once."""
    figures: list[Figure] = []
    save = Figure.savefig

    def recording(figure: Figure, *arguments: Any, **options: Any) -> None:
        save(figure, *arguments, **options)
        if not any(figure is known for known in figures):
            figures.append(figure)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", recording)
        yield figures


def marks_of(figure: Figure) -> list[dict[str, Any]]:
    """The marks of each of its axes, without what an axes lacks."""
    return [{kind: marks for kind, marks in _of_axes(axes).items() if marks} for axes in figure.axes]


def _of_axes(axes: Axes) -> dict[str, Any]:
    legend = axes.get_legend()
    return {
        "titles": [axes.get_title(loc="left"), axes.get_xlabel(), axes.get_ylabel()],
        "scales": [axes.get_xscale(), axes.get_yscale()],
        "limits": _numbers([*axes.get_xlim(), *axes.get_ylim()]),
        "ticks": [tick.get_text() for tick in (*axes.get_xticklabels(), *axes.get_yticklabels())],
        "spines": [side for side, spine in axes.spines.items() if spine.get_visible()],
        "grid": [line.get_visible() for line in (*axes.get_xgridlines(), *axes.get_ygridlines())],
        "legend": [text.get_text() for text in legend.get_texts()] if legend else [],
        "lines": [
            _style(line, line.get_color(), line.get_linewidth())
            | {
                "dashes": str(line.get_linestyle()),
                "marker": [str(line.get_marker()), line.get_markersize(), line.get_markeredgewidth()],
                "faces": [_hex(line.get_markerfacecolor()), _hex(line.get_markeredgecolor())],
                "x": _numbers(line.get_xdata()),
                "y": _numbers(line.get_ydata()),
            }
            for line in axes.lines
        ],
        "collections": [_of_collection(collection) for collection in axes.collections],
        "patches": [
            _style(patch, patch.get_facecolor(), patch.get_linewidth())
            | {
                "edge": _hex(patch.get_edgecolor()),
                "path": _numbers(patch.get_patch_transform().transform(patch.get_path().vertices)),
            }
            for patch in axes.patches
        ],
        "texts": [[_numbers(text.get_position()), text.get_text()] for text in axes.texts],
        "images": [list(np.shape(image.get_array())) for image in axes.images],
    }


def _of_collection(collection: Collection) -> dict[str, Any]:
    colours = [_hex(colour) for colour in (*collection.get_facecolor(), *collection.get_edgecolor())]
    vertices = [path.vertices for path in collection.get_paths()]
    return _style(
        collection, colours[0] if colours else "none", float(np.sum(collection.get_linewidth()))
    ) | {
        "colours": sorted(set(colours)),
        "offsets": _numbers(collection.get_offsets()),
        "paths": _numbers(np.concatenate(vertices)) if vertices else [],
    }


def _style(artist: Artist, colour: Any, width: float) -> dict[str, Any]:
    return {
        "colour": _hex(colour),
        "alpha": artist.get_alpha(),
        "width": width,
        "visible": artist.get_visible(),
        "order": artist.get_zorder(),
        "clipped": artist.get_clip_on(),
        "label": str(artist.get_label()).partition("child")[0],
    }


def _hex(colour: Any) -> str:
    return "none" if isinstance(colour, str) and colour == "none" else to_hex(colour, keep_alpha=True)


def _numbers(values: Sequence[Any] | np.ndarray) -> list[float]:
    """All of few numbers; of more the count, the mean, the extremes, and the first and the last."""
    numbers = np.ma.filled(np.ma.asarray(values, dtype=float), np.nan).ravel()
    if len(numbers) <= FEW:
        return [float(number) for number in numbers]
    ends = np.nanmean(numbers), np.nanmin(numbers), np.nanmax(numbers), numbers[0], numbers[-1]
    return [float(len(numbers)), *map(float, ends)]
