"""The defaults of all settings: a recipe without a setting keeps its result after an update."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from unseen.runtime.settings import Strict

DEFAULTS = Path(__file__).with_name("defaults.json")
MODULES = (
    *("unseen.config.inputs", "unseen.config.stages", "unseen.config.study_row"),
    *("unseen.data.settings", "unseen.data.ingest.settings", "unseen.evaluation.settings"),
    *("unseen.losses.settings", "unseen.methods.settings", "unseen.networks.settings"),
    *("unseen.poolings.settings", "unseen_search.service.settings"),
)


def settings_below(cls: type[Strict]) -> Iterator[type[Strict]]:
    for each in cls.__subclasses__():
        yield each
        yield from settings_below(each)


def defaults_of(cls: type[BaseModel]) -> dict[str, Any]:
    defaults = {}
    for name, field in cls.model_fields.items():
        if not field.is_required():
            value = field.get_default(call_default_factory=True)
            is_block = isinstance(value, BaseModel)
            defaults[name] = (
                type(value).__name__ if is_block else json.loads(json.dumps(value, default=plain))
            )
    return defaults


def plain(value: object) -> object:
    return sorted(value) if isinstance(value, frozenset) else repr(value)


def test_defaults_are_those_of_earlier_results(tmp_path: Path) -> None:
    """A changed default changes the results of those who leave out the setting."""
    for module in MODULES:
        importlib.import_module(module)
    present = {
        f"{cls.__module__}.{cls.__qualname__}": defaults
        for cls in settings_below(Strict)
        if getattr(sys.modules[cls.__module__], cls.__name__, None) is cls  # not made for a part of a user
        if cls.__module__ in MODULES and (defaults := defaults_of(cls))
    }
    lines = [f"{json.dumps(name)}: {json.dumps(present[name])}" for name in sorted(present)]
    (tmp_path / DEFAULTS.name).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    known = json.loads(DEFAULTS.read_text(encoding="utf-8"))
    assert present == known, f"{tmp_path / DEFAULTS.name} has the present defaults"
