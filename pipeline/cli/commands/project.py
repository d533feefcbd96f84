"""The directory of the project: a clone, in which the graph works. A wheel contains no project."""

import os

from unseen.runtime.errors import UserError
from unseen.runtime.stage import ROOT


def in_project() -> bool:
    """Changes to the directory of the project. Without one, stays and returns False."""
    if not (ROOT / "dvc.yaml").is_file():
        return False
    os.chdir(ROOT)
    return True


def enter_project() -> None:
    """Changes to the directory of the project. Raises UserError without one."""
    if not in_project():
        raise UserError(
            f"This command needs the graph. The installation in {ROOT} contains no dvc.yaml.",
            "Clone the repository, type `make repro` in the clone, and activate its environment.",
        )
