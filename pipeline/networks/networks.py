"""The networks that timm lacks, by their name in a recipe: recipes/networks.yaml.

The table is not a module, so that a further network changes the code of no existing run. Each module is
imported when its network is built.
"""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

_TABLE = Path(__file__).parents[1] / "recipes/networks.yaml"


@dataclass(frozen=True)
class ProjectNetwork:
    """`name` of `module`, a class or a function that builds the network."""

    module: str
    name: str

    def build(self, options: dict[str, Any]) -> Any:
        """The network with `options`, the `backbone.arguments` of a recipe."""
        return getattr(import_module(self.module), self.name)(**options)


PROJECT_NETWORKS = {
    name: ProjectNetwork(*place.split(":"))
    for name, place in YAML(typ="safe").load(_TABLE.read_text(encoding="utf-8")).items()
}
