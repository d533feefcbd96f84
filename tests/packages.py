"""Packages of an extra: a test that needs one fails in CI without it, and is skipped elsewhere."""

import os
from typing import TypeVar

import pytest

Needed = TypeVar("Needed")


def require(extra: str, needed: Needed | None) -> Needed:
    """`needed`, which is None if the extra is not installed."""
    if needed is None:
        message = f"pip install 'unseen[{extra}]' installs what this test needs"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return needed
