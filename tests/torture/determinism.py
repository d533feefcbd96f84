"""Equal bytes for equal inputs, and what a number of threads changes: `python -m tests.torture.determinism`.

The stages from resolve to report run on the miniature project of operations.py:

    again          three times in all
    loader         with another number of loader threads
    threads        with 2 instead of 1 threads of computation, in float32 and with precision `auto`; the
                   differences are measured
    processor      in new processes, in float32, with all vector instructions of this processor and with those
                   of AVX2 only; the differences are measured
    file order     ingest of one folder of images whose files were created in two orders
"""

import argparse
import hashlib
import os
import platform
import resource
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from ruamel.yaml import YAML
from safetensors.numpy import load_file

from tests.data.ingest.pictures import encode, pixels
from tests.torture import results
from tests.torture.operations import CELL, PREPARATION, required, write_project
from unseen.data.embeddings import read
from unseen.data.ingest.ingest import ingest
from unseen.data.ingest.settings import FolderSource, IngestSettings
from unseen.methods.settings import BaselineRecipe
from unseen.training.precision import with_effective_precision

STATE = results.RESULTS / "determinism.json"
STAGES = ("resolve", "ingest", "train", "export", "evaluate", "analyze", "report")
MODULES = (*(f"unseen.stages.{stage}" for stage in STAGES), "unseen.data.ingest.sources.parts")
# The libraries choose their instructions when they start: PyTorch, oneDNN, MKL, OpenBLAS of numpy.
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
}
_NAME = "/".join(map(str, CELL))


def in_fork(work: Callable[[], object]) -> None:
    """Runs `work` in a fork, without its output. Raises RuntimeError if it fails."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError("a stage failed, see above")


def run_stages(
    folder: Path, loader_threads: int = 1, threads: int = 1, precision: str = "auto", last: str = "report"
) -> Path:
    """A new project with these numbers of threads and this precision, after its stages up to `last` ran."""
    project = folder / f"project {len(list(folder.iterdir()))}"
    project.mkdir()
    write_project(project)
    yaml = YAML()
    params = yaml.load((project / "params.yaml").read_text(encoding="utf-8"))
    params["train"]["loader_threads"] = loader_threads
    training = params["datasets"]["parts"]["recipe"]["training"]
    training.update({"threads": threads, "precision": precision})
    with (project / "params.yaml").open("w", encoding="utf-8") as file:
        yaml.dump(params, file)
    for operation in required([last]):
        for module in operation.modules:  # once, and not in every fork
            import_module(module)
        if operation.name == "resolve":
            PREPARATION["resolve"](project)  # reads the code

        def work(run: Callable[[], None] = operation.run) -> None:
            os.chdir(project)
            run()

        in_fork(work)
    return project


def run_in_new_process(folder: Path, environment: dict[str, str]) -> Path:
    """As `run_stages` in float32 with one thread, in a process with these variables."""
    code = "import sys; from pathlib import Path; from tests.torture import determinism as d\n"
    code += "print(d.run_stages(Path(sys.argv[1]), precision='float32'))"
    others = {name: value for name, value in os.environ.items() if name not in AVX2}
    process = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        cwd=results.ROOT,
        env=others | environment,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return Path(process.stdout.splitlines()[-1])


def digests(folder: Path) -> dict[str, str]:
    """sha256 of each file below `folder`, by name, without logs and state."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.relative_to(folder).parts[0] not in ("logs", "state")
    }


def different(first: Path, second: Path) -> list[str]:
    """The names of files that differ or exist in one folder only."""
    left, right = digests(first), digests(second)
    return [name for name in sorted(left.keys() | right.keys()) if left.get(name) != right.get(name)]


def file_orders(folder: Path) -> list[str]:
    """What ingest writes differently if the files were created in the reverse order."""
    images = [(f"c{number // 4}/{number}.jpg", encode(pixels(number))) for number in range(16)]
    shards = []
    for name, order in (("forward", images), ("reverse", images[::-1])):
        for path, content in order:
            target = folder / name / "images" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)

        def work(folder: Path = folder / name) -> None:
            os.chdir(folder)
            ingest(FolderSource(path="images"), IngestSettings(), folder / "shards", "mine", 1)

        in_fork(work)
        shards.append(folder / name / "shards")
    return different(*shards)


def equal_runs(folder: Path, last: str, again: int) -> tuple[Path, dict[str, list[str]]]:
    """A project after its stages up to `last`, and what differs in the runs that must be equal to it: `again`
    further ones, one with more loader threads, and ingest of files in another order."""
    for name in ("orders", "runs"):
        (folder / name).mkdir()
    first = run_stages(folder / "runs", last=last)
    runs = [run_stages(folder / "runs", last=last) for _ in range(again)]
    loader = run_stages(folder / "runs", loader_threads=3, last=last)
    return first, {
        "again": sorted({name for run in runs for name in different(first / "data", run / "data")}),
        "loader": different(first / "data", loader / "data"),
        "file order": file_orders(folder / "orders"),
    }


def largest_differences(first: Path, second: Path) -> dict[str, float]:
    """The largest difference of a weight and of a value of an embedding."""
    weights = [load_file(path / f"data/models/{_NAME}/last.safetensors") for path in (first, second)]
    vectors = [read(path / f"data/embeddings/{_NAME}/test.arrow").embedding for path in (first, second)]
    of_weights = [
        float(np.abs(weights[0][name].astype(np.float64) - weights[1][name]).max()) for name in weights[0]
    ]
    return {"weight": max(of_weights), "embedding": float(np.abs(vectors[0] - vectors[1]).max())}


def campaign(state: Path) -> None:
    """Runs everything again. It takes about a CPU minute."""
    before = _cpu_seconds()
    recorded = results.load(state)
    result = results.current(recorded, "determinism", MODULES)
    with tempfile.TemporaryDirectory(prefix="unseen-determinism-") as name:
        folder = Path(name)
        first, equal = equal_runs(folder, "report", again=2)
        automatic = run_stages(folder / "runs", threads=2)
        float32, threads = (
            run_stages(folder / "runs", threads=count, precision="float32") for count in (1, 2)
        )
        every, avx2 = (run_in_new_process(folder / "runs", variables) for variables in ({}, AVX2))
        result |= equal | {
            "files": len(digests(first / "data")),
            "threads": different(float32 / "data", threads / "data"),
            "largest": largest_differences(float32, threads),
            "precision": with_effective_precision(BaselineRecipe(), torch.device("cpu")).training.precision,
            "largest of automatic": largest_differences(first, automatic),
            "processor": different(every / "data", avx2 / "data"),
            "largest of processor": largest_differences(every, avx2),
            "instructions": f"{torch.backends.cpu.get_cpu_capability()} on {platform.machine()}",
        }
    result["cpu_seconds"] = _cpu_seconds() - before
    results.save(state, recorded)


def _cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def section(recorded: dict[str, results.Result]) -> Iterator[str]:
    """The lines of docs/reliability.md."""
    yield """## Determinism

`python -m tests.torture.determinism`

The stages from resolve to report on the miniature project, without Ray. Files in data/logs,
data/fold_logs and data/state, which contain times, are excluded.
"""
    for result in recorded.values():
        yield "| variant | files | that differ |"
        yield "|---|---|---|"
        for variant, text in (
            ("again", "the same run, three times"),
            ("loader", "`train.loader_threads` 3 instead of 1"),
            ("file order", "ingest of one folder, files created in the reverse order"),
            ("threads", "`training.threads` of the recipe 2 instead of 1, float32"),
            ("processor", f"AVX2 only instead of {result.get('instructions', '')}, float32"),
        ):
            if variant not in result:
                continue
            files = "shards" if variant == "file order" else f"{result['files']:,}"
            yield f"| {text} | {files} | {len(result[variant]) or 'none'} |"
        yield ""
        yield f"With another number of threads of computation, {differences(result, 'threads', 'largest')}"
        if "processor" in result:
            automatic = result["largest of automatic"]
            yield (
                f"With `training.precision: auto`, here {result['precision']}, they are "
                f"{automatic['weight']:.1e} and {automatic['embedding']:.1e}."
            )
            yield (
                "With the vector instructions of another processor (variables limit PyTorch, oneDNN, MKL and "
                f"OpenBLAS to AVX2), {differences(result, 'processor', 'largest of processor')} With "
                "`training.precision: auto`, a processor without AVX512_BF16 also trains in float32 instead "
                "of bfloat16: set the precision for equal trainings."
            )
        yield f"{result['cpu_seconds']:,.0f} CPU s; commit {result['commit']}."
        yield ""


def differences(result: results.Result, variant: str, largest: str) -> str:
    """How many files of a variant differ, where, and by how much."""
    files: Sequence[str] = result[variant]
    folders = sorted({name.partition("/")[0] for name in files})
    weight, embedding = (f"{result[largest][name]:.1e}" for name in ("weight", "embedding"))
    return (
        f"{len(files)} files differ, below {', '.join(folders) or 'no folder'}. After 4 steps, the largest "
        f"difference of a weight is {weight}, and of a value of a unit embedding {embedding}: sums are "
        "rounded in another order."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Equal bytes for equal inputs.")
    parser.add_argument("--state", type=Path, default=STATE, help="file of the results")
    campaign(parser.parse_args().state)


if __name__ == "__main__":
    main()
