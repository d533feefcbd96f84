"""Writes the lock files of this directory from the version ranges of pyproject.toml.

`make lock` keeps the pins that the ranges allow; `make lock UPGRADE=1` selects the newest versions. One
resolution covers all extras, Python from 3.11 on, and every platform. It is divided into files, because an
environment contains one build of FAISS, and the CUDA libraries only if its torch needs them:

    build.txt        setuptools, which builds the project and the packages without a wheel
    runtime.txt      dependencies of the project, without torch
    torch.txt        torch and torchvision, as versions without hashes: a version has several builds (CPU,
                     CUDA), and the pip configuration of the machine selects one
    cuda.txt         additional dependencies of the CUDA build of torch
    faiss-cpu.txt, faiss-gpu.txt, development.txt, cluster.txt, serve.txt, s3.txt, docs.txt
                     additional dependencies of each extra
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent / "pyproject.toml"
EXTRAS = {
    "cpu": "faiss-cpu",
    "gpu": "faiss-gpu",
    "dev": "development",
    "cluster": "cluster",
    "serve": "serve",
    "s3": "s3",
    "docs": "docs",
}
TORCH = ("torch", "torchvision")
BUILD = ("setuptools",)
_HEADER = "# Written by `make lock` from pyproject.toml. Do not edit.\n"
_PIN = re.compile(r"([A-Za-z0-9._-]+)==[^ ]+")

Pins = dict[str, str]  # name of a package -> its lines in the lock file


def pins(text: str) -> Pins:
    """The pins of a lock file, each with its marker and its hashes."""
    blocks = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)
    return {match[1]: block for block in blocks if (match := _PIN.match(block)) is not None}


def resolve(requirement: str | None, *options: str) -> Pins:
    """The pins of a requirement and its dependencies, or those of pyproject.toml for None."""
    arguments = ["--quiet", "--generate-hashes", "--no-header", "--no-annotate", "--python-version", "3.11"]
    arguments += ["--fork-strategy", "fewest", *options, str(PROJECT) if requirement is None else "-"]
    result = subprocess.run(
        [sys.executable, "-m", "uv", "pip", "compile", *arguments],
        input=requirement or "",
        check=True,
        text=True,
        stdout=subprocess.PIPE,
    )
    return pins(result.stdout)


def main(options: list[str]) -> None:
    """Resolves the requirements with these options of uv, and writes the lock files."""
    with tempfile.TemporaryDirectory() as folder:
        everything = Path(folder) / "everything.txt"
        current = "".join(path.read_text(encoding="utf-8") for path in sorted(HERE.glob("*.txt")))
        everything.write_text(current, encoding="utf-8")
        # uv prefers the pins in its output file.
        resolve(None, "--universal", "--all-extras", *options, "-o", str(everything))
        locked = pins(everything.read_text(encoding="utf-8"))
        pinned = ("-c", str(everything))
        runtime = resolve(None, "--universal", *pinned).keys()
        extras = {
            file: resolve(None, "--universal", "--extra", extra, *pinned).keys()
            for extra, file in EXTRAS.items()
        }
        torch = resolve("torch", "--universal", *pinned).keys()
        # For Windows the registry has the CPU build.
        torch_without_cuda = resolve("torch", "--python-platform", "windows", *pinned).keys()
    cuda = torch - torch_without_cuda
    base = runtime - cuda - {*TORCH}
    write("build", locked, BUILD)
    write("runtime", locked, base)
    write("cuda", locked, cuda)
    for file, names in extras.items():
        write(file, locked, names - runtime)
    versions = "".join(f"{match[0]}\n" for name in TORCH if (match := _PIN.match(locked[name])) is not None)
    (HERE / "torch.txt").write_text(_HEADER + versions, encoding="utf-8")


def write(file: str, locked: Pins, names: Iterable[str]) -> None:
    """Writes the pins of `names` into a lock file."""
    content = _HEADER + "".join(locked[name] for name in sorted(names))
    (HERE / f"{file}.txt").write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
