"""What a test needs besides the core packages. Without it a test fails in CI, and is skipped elsewhere."""

import os
import shutil
from typing import NoReturn, TypeVar

import pytest

Needed = TypeVar("Needed")


def require(extra: str, needed: Needed | None) -> Needed:
    """`needed`, which is None if the extra is not installed."""
    return (
        _missing(f"pip install 'unseen[{extra}]' installs what this test needs") if needed is None else needed
    )


def require_browser() -> str:
    """The path of Chromium or Chrome."""
    found = filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    return next(found, None) or _missing("no Chromium or Chrome is installed")


def _missing(message: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)
