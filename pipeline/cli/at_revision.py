"""The files of the project at a git revision or a DVC experiment."""

import subprocess
from pathlib import Path

from unseen.runtime.errors import UserError


class AtRevision:
    """The project at `revision`: a commit, branch, tag or experiment; None is the workspace. Raises UserError
    for a revision where git reads no repository."""

    def __init__(self, revision: str | None) -> None:
        from dvc.api import DVCFileSystem

        if revision is not None:
            _require_repository(revision)
        self.name = revision or "now"
        self._files = DVCFileSystem(".", rev=revision)

    def read(self, path: Path, hint: str = "") -> bytes:
        """The bytes of a file. Raises UserError for an unknown revision, and, with this hint, if neither git
        nor DVC's cache has the file."""
        from dvc.exceptions import DvcException
        from dvc.scm import RevError
        from dvc_data.index import DataIndexDirError

        try:
            return bytes(self._files.read_bytes(path.as_posix()))
        except RevError as error:
            raise UserError(
                f"Unknown git revision {self.name}.",
                "`git log --oneline` lists the revisions, `dvc exp list` the experiments.",
            ) from error
        except (FileNotFoundError, DvcException, DataIndexDirError) as error:
            raise UserError(
                f"{path} of {self.name} is neither in git nor in DVC's cache.",
                "`dvc repro` at that revision with this data set and method writes it; `dvc fetch "
                f"--all-commits` fetches it from a remote. {hint}".rstrip(),
            ) from error


def _require_repository(revision: str) -> None:
    """Raises UserError with git's reason where there is no repository, or one of another user."""
    command = ["git", "rev-parse", "--git-dir"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise UserError(
            f"{revision} cannot be read: {' '.join(process.stderr.split())}",
            "Run in a clone of the project that git can read.",
        )
