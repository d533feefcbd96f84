"""The commands `unseen init` and `unseen lock`: a project outside of a clone. Its stages run from the
installed package, and its files are those of a clone without the code."""

import shlex
import shutil
import subprocess
from pathlib import Path

from unseen.runtime.errors import UserError
from unseen.runtime.stage import PACKAGE, ROOT
from unseen.runtime.version_lock import LOCK, accept

# File of a project -> file in the folder `project`, most of them links to the files of a clone. Their names
# differ, because a clone would have a second graph, and more patterns for git.
_TEMPLATES = {
    "params.yaml": "params.yaml",
    "dvc.yaml": "graph.yaml",
    "studies/example.yaml": "study.yaml",
    "parts/__init__.py": "parts.py",
    "data/raw/README.md": "raw.md",
    "data/sweep/README.md": "sweep.md",
    ".gitignore": "git.ignore",
    ".dvcignore": "dvc.ignore",
    ".dvc/config": "dvc.config",
    ".dvc/.gitignore": "dvc.git.ignore",
}
_EXTENDED = (".gitignore", ".dvcignore")  # if they exist
_OF_A_CLONE = "# of a clone alone\n"  # the end of their part for a project
_CODE, _PARTS = "deps: [pipeline, stages, parts, studies]", f"deps: [{LOCK}, parts, studies]"


def init(project: Path) -> str:
    """Writes the files of a project; starts git and DVC, unless the directory or one above it is under them.
    Returns what to do next. Raises UserError if a file exists or git is missing, before it writes one."""
    above = (project.resolve(), *project.resolve().parents)
    has_git, has_dvc = (any((folder / name).exists() for folder in above) for name in (".git", ".dvc"))
    names = [name for name in _TEMPLATES if not (has_dvc and name.startswith(".dvc/"))]
    for name in (*names, LOCK):
        if name not in _EXTENDED and (project / name).exists():
            raise UserError(f"{project / name} exists.", "Name a directory without a project.")
    if not has_git and shutil.which("git") is None:
        raise UserError("git is not installed.", "Install it: DVC works in a repository of git.")
    for name in names:
        template = Path(__file__).with_name("project") / _TEMPLATES[name]
        text = template.read_text(encoding="utf-8").partition(_OF_A_CLONE)[0]
        if (project / name).exists():
            text = f"\n{text}"
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        with (project / name).open("a", encoding="utf-8") as file:
            file.write(text.replace(_CODE, _PARTS))
    if not has_git:
        subprocess.run(["git", "init", "--quiet", project], check=True)
    return (
        f"{project} is a project of {accept(project, PACKAGE)}. Next:\n"
        f"  cd {shlex.quote(str(project))}\n"
        "  git add --all && git commit --message 'Start'\n"
        "  unseen run    # params.yaml: the built-in data set, 5 to 15 minutes on two cores\n"
    )


def lock() -> str:
    """Writes unseen.lock of the project for the installed package. Raises UserError in a clone."""
    if PACKAGE.parent == ROOT:
        raise UserError(f"{ROOT} is a clone.", "`unseen run` runs the stages whose code changed.")
    return f"{ROOT / LOCK} accepts {accept(ROOT, PACKAGE)}; then run `unseen run`.\n"
