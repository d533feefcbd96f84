"""Writes the lock files beside this one from the ranges of pyproject.toml.

`make lock` keeps the pins that the ranges allow; `make lock UPGRADE=1` takes the newest versions. One
resolution holds for all extras, for Python from 3.11 on and for every platform. It is divided into files,
because an environment takes one build of FAISS, and the CUDA libraries only where its torch needs them:

    build.txt        setuptools, which builds the project and the packages without a wheel
    runtime.txt      what the project needs, without torch
    torch.txt        torch and torchvision: versions without hashes, because one version has several builds
    (CPU, CUDA),
                     and the machine's own configuration of pip chooses among them
    cuda.txt         what the CUDA build of torch needs besides
    faiss-cpu.txt, faiss-gpu.txt, development.txt, cluster.txt, docs.txt    what each extra needs besides
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent / "pyproject.toml"
EXTRAS = {"cpu": "faiss-cpu", "gpu": "faiss-gpu", "dev": "development", "cluster": "cluster", "docs": "docs"}
TORCH = ("torch", "torchvision")
BUILD = ("setuptools",)
_HEADER = "# Written by `make lock` from pyproject.toml. Do not edit.\n"
_PIN = re.compile(r"([A-Za-z0-9._-]+)==[^ ]+")

Pins = dict[str, str]  # name -> its lines


def pins(text: str) -> Pins:
    """The requirements of a lock file, each with its marker and its hashes."""
    blocks = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)
    return {match[1]: block for block in blocks if (match := _PIN.match(block)) is not None}


def resolve(requirement: str | None, *options: str) -> Pins:
    """What a requirement needs, or pyproject.toml where there is none."""
    command = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "compile",
        "--quiet",
        "--generate-hashes",
        "--no-header",
        "--no-annotate",
    ]
    command += [
        "--python-version",
        "3.11",
        "--fork-strategy",
        "fewest",
        *options,
        str(PROJECT) if requirement is None else "-",
    ]
    return pins(
        subprocess.run(command, input=requirement or "", check=True, text=True, stdout=subprocess.PIPE).stdout
    )


def main(options: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        everything = Path(folder) / "everything.txt"
        everything.write_text(
            "".join(path.read_text(encoding="utf-8") for path in sorted(HERE.glob("*.txt"))), encoding="utf-8"
        )
        resolve(
            None, "--universal", "--all-extras", *options, "-o", str(everything)
        )  # prefers the pins that it finds there
        locked = pins(everything.read_text(encoding="utf-8"))
        pinned = ("-c", str(everything))
        runtime = resolve(None, "--universal", *pinned).keys()
        extras = {
            file: resolve(None, "--universal", "--extra", extra, *pinned).keys()
            for extra, file in EXTRAS.items()
        }
        of_torch = resolve("torch", "--universal", *pinned).keys()
        # The registry has a CPU build for Windows.
        of_torch_without_cuda = resolve("torch", "--python-platform", "windows", *pinned).keys()
    cuda = of_torch - of_torch_without_cuda
    base = runtime - cuda - {*TORCH}
    write("build", locked, BUILD)
    write("runtime", locked, base)
    write("cuda", locked, cuda)
    for file, names in extras.items():
        write(file, locked, names - runtime)
    versions = "".join(f"{match[0]}\n" for name in TORCH if (match := _PIN.match(locked[name])) is not None)
    (HERE / "torch.txt").write_text(_HEADER + versions, encoding="utf-8")


def write(file: str, locked: Pins, names: Iterable[str]) -> None:
    (HERE / f"{file}.txt").write_text(
        _HEADER + "".join(locked[name] for name in sorted(names)), encoding="utf-8"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
