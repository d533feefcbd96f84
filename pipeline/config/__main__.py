"""`python -m pipeline.config parts ms`: every value of the recipe of a method on a data set, and where it comes from."""

import argparse
import os
import sys
from typing import Any

from pipeline.config.command import literal, standing
from pipeline.config.params import Params
from pipeline.config.resolve import resolve
from pipeline.runtime.stage import ROOT, said_plainly


def shown(params: Params, dataset: str, method: str) -> str:
    """The resolved recipe as indented lines of field, value and origin: line and block of params.yaml, or `default` for a published default.

    Raises UserError as `resolve` does.
    """
    lines = list(_lines(params, dataset, method, resolve(params, dataset, method).model_dump(mode="json")))
    widths = [max(len(line[column]) for line in lines) for column in (0, 1)]
    return "\n".join(f"{field:<{widths[0]}}  {value:<{widths[1]}}  {where}".rstrip() for field, value, where in lines)


def _lines(params: Params, dataset: str, method: str, block: dict[str, Any], above: str = "") -> Any:
    for key, value in block.items():
        field, indent = f"{above}{key}", "  " * above.count(".")
        if isinstance(value, dict) and value:
            yield f"{indent}{key}:", "", ""
            yield from _lines(params, dataset, method, value, f"{field}.")
        else:
            yield f"{indent}{key}:", literal(value), standing(params, dataset, method, field)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m pipeline.config", description="Where the values of a recipe come from.")
    parser.add_argument("dataset")
    parser.add_argument("method")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    with said_plainly():
        sys.stdout.write(f"{shown(Params(), arguments.dataset, arguments.method)}\n")
