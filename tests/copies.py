"""A copy of the code of the project that a test may edit."""

import shutil
from pathlib import Path

from unseen.runtime.stage import ROOT


def copy_code(root: Path) -> None:
    """Copies the packages and dvc.yaml into `root`, with the links that give the packages their names."""
    for name in ("pipeline", "stages", "unseen_search", "dvc_parallel", "tools"):
        shutil.copytree(ROOT / name, root / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "unseen").symlink_to("pipeline")
    shutil.copy(ROOT / "dvc.yaml", root)
