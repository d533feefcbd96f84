"""Every package is in a layer of .importlinter."""

import configparser
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_every_package_is_in_a_layer() -> None:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    layers = set(re.findall(r"pipeline\.(\w+)", contracts["importlinter:contract:layers"]["layers"]))
    packages = {path.parent.name for path in (ROOT / "pipeline").glob("*/__init__.py")}
    assert packages <= layers
