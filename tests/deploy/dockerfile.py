"""Reads a Dockerfile, and runs the build steps of one of its targets in an empty folder, without Docker:

    python -m tests.deploy.dockerfile cuda FOLDER [BUILD_ARGUMENT=VALUE ...]

Absolute paths become paths in FOLDER. Packages of the system are those of the machine: steps with apt-get and
useradd are printed and not run.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy/Dockerfile"
BUILT = {"FROM", "RUN", "COPY", "ARG", "ENV", "WORKDIR", "USER"}
INSTRUCTIONS = BUILT | {"EXPOSE", "HEALTHCHECK", "ENTRYPOINT"}
_OF_THE_SYSTEM = ("apt-get", "useradd")


@dataclass(frozen=True)
class Target:
    """One `FROM ... AS name`: the image or target that it begins with, and its instructions."""

    name: str
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)


def read(text: str) -> dict[str, Target]:
    """The targets by name. Raises ValueError for an instruction that this reader does not have."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    targets: dict[str, Target] = {}
    current: Target | None = None
    for line in lines.replace("\\\n", " ").splitlines():
        if not line.strip():
            continue
        instruction, _, argument = line.partition(" ")
        if instruction not in INSTRUCTIONS:
            raise ValueError(f"{instruction} is not an instruction of this reader")
        if instruction == "FROM":
            match = re.fullmatch(r"(\S+) AS (\S+)", argument)
            if match is None:
                raise ValueError(f"FROM {argument}: write FROM <base> AS <name>")
            current = Target(match[2], match[1])
            targets[current.name] = current
        elif current is None:
            raise ValueError(f"{instruction} before FROM")
        else:
            current.steps.append((instruction, " ".join(argument.split())))
    return targets


def chain(targets: dict[str, Target], name: str) -> list[Target]:
    """The target `name` after those that it begins with."""
    target = targets[name]
    return [*(chain(targets, target.base) if target.base in targets else []), target]


def copies(target: Target) -> list[tuple[str | None, list[str], str]]:
    """Its COPY steps: the target copied from (None: the project), the sources, the destination."""
    parsed = []
    for instruction, argument in target.steps:
        if instruction == "COPY":
            words = argument.split()
            options = [word for word in words if word.startswith("--")]
            *sources, destination = [word for word in words if word not in options]
            origin = options[0].removeprefix("--from=") if options else None
            parsed.append((origin, sources, destination))
    return parsed


def build(name: str, root: Path, arguments: dict[str, str]) -> None:
    """Runs the steps of the targets that the COPY steps of target `name` name, then its own."""
    targets = read(DOCKERFILE.read_text(encoding="utf-8"))
    for origin in [each for target in chain(targets, name) for each, _, _ in copies(target) if each]:
        build(origin, root, arguments)
    environment, folder = os.environ | arguments, root
    environment.pop("PYTHONPATH", None)
    for instruction, argument in [step for target in chain(targets, name) for step in target.steps]:
        inside = re.sub(r"(?<![\w:/.])/(opt|shared|home)", rf"{root}/\1", argument)
        print(f"== {instruction} {inside}", flush=True)
        if instruction == "WORKDIR":
            folder = Path(inside)
            folder.mkdir(parents=True, exist_ok=True)
        elif instruction == "ENV":
            variable, _, value = inside.partition("=")
            environment[variable] = value.replace("$PATH", environment["PATH"])
        elif instruction == "ARG":
            variable, _, value = argument.partition("=")
            environment.setdefault(variable, value)
        elif instruction == "COPY" and not inside.startswith("--from="):
            *sources, destination = inside.split()
            if destination.endswith("/"):
                (folder / destination).mkdir(parents=True, exist_ok=True)
            for source in sources:
                place = folder / destination
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, place, dirs_exist_ok=True)
                else:
                    shutil.copy(ROOT / source, place)
        elif instruction == "RUN" and not argument.startswith(_OF_THE_SYSTEM):
            subprocess.run(["sh", "-c", inside], cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    pairs = dict(pair.split("=", 1) for pair in sys.argv[3:])
    build(sys.argv[1], Path(sys.argv[2]).resolve(), pairs)
