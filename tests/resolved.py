"""Resolved files for tests of stages."""

from pathlib import Path
from typing import Any

from unseen.config.inputs import MODELS, content_of, path_of
from unseen.runtime.files import write_json


def write_resolved(root: Path, stage: str, *cell: str, **settings: Any) -> None:
    """The resolved file of a stage under `root`, with these plain settings and without code."""
    path = root / path_of(stage, *cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, content_of(MODELS[stage].parse(settings), {}))
