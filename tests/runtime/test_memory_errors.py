"""A failed allocation is a message of the project, without the internal text of a library."""

import errno
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
import torch

from unseen.runtime.memory import LEAST, memory_problem

# Allocates in a module with the name of one of the project, below a limit.
PROGRAM = """
import resource, sys, types
import torch
from unseen.runtime.stage import report_errors
module = types.ModuleType("unseen.drawn")
exec("def draw(torch):\\n    return [torch.zeros(2**26) for _ in range(64)]", module.__dict__)
resource.setrlimit(resource.RLIMIT_DATA, (2**30, 2**30))
with report_errors():
    module.draw(torch)
"""


@pytest.mark.slow
def test_names_size_module_limit_and_remedy() -> None:
    process = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert process.stderr == (
        "error: The memory does not suffice: 268,435,456 bytes could not be allocated in unseen.drawn. The "
        "limit of this process is 1.00 GiB (`ulimit -d`).\n  Raise the limit (`ulimit`, the memory of the "
        "container or job), end other programs, or use a machine with more memory. docs/reliability.md lists "
        "the memory of each stage.\n"
    )
    assert process.returncode == 1


@pytest.mark.parametrize(
    ("error", "size"),
    [
        (MemoryError(), "memory"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "memory"),
        (RuntimeError("unable to mmap 9 bytes from file <a>: Cannot allocate memory (12)"), "memory"),
        (RuntimeError("Error in faiss::read_index: std::bad_alloc"), "memory"),
        (RuntimeError("could not create a primitive"), "memory"),
        (RuntimeError("can't start new thread"), "the stack of a thread"),
        (pa.ArrowMemoryError("malloc of size 181120 failed"), "181,120 bytes"),
        (pa.ArrowMemoryError("realloc of size 64 failed"), "64 bytes"),
    ],
)
def test_names_the_failure(error: Exception, size: str) -> None:
    problem = memory_problem(error)
    assert str(problem).startswith(f"The memory does not suffice: {size} could not be allocated.")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.10 GiB of "
            "which 12.00 MiB is free.",
            "memory of GPU 0, 79.10 GiB, does not suffice: 20.00 MiB",
        ),
        ("CUDA out of memory. Tried to allocate 2.00 GiB.", "memory of the GPU does not suffice: 2.00 GiB"),
        ("CUDA error: out of memory", "memory of the GPU does not suffice: memory"),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED", "memory of the GPU does not suffice: memory"),
    ],
)
def test_names_the_gpu_whose_memory_is_full(text: str, what: str) -> None:
    problem = memory_problem(torch.OutOfMemoryError(text))
    assert problem is not None
    assert problem.what == f"The {what} could not be allocated."
    assert "train.images_per_pass" in problem.remedy
    assert memory_problem(ValueError(text)) is None


def test_names_the_size_of_an_array() -> None:
    with pytest.raises(MemoryError) as caught:
        np.empty(2**60, np.uint8)
    assert "1.00 EiB could not be allocated" in str(memory_problem(caught.value))


def test_other_errors_are_no_problem_of_memory() -> None:
    assert memory_problem(RuntimeError("shapes differ")) is None
    assert memory_problem(ValueError("std::bad_alloc")) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "limit", "refused"),
    [
        *(("train", LEAST - 1, True), ("train", LEAST, False)),
        *(("report", LEAST - 1, True), ("ingest", LEAST - 1, False)),
    ],
)
def test_a_limit_below_the_needs_of_the_libraries_is_refused_before_the_work(
    stage: str, limit: int, refused: bool
) -> None:
    program = (
        "import resource, sys\nfrom unseen.runtime.stage import main\n"
        f"sys.argv[0] = '{stage}.py'\nresource.setrlimit(resource.RLIMIT_DATA, ({limit}, {limit}))\n"
        "main(lambda: print('work'))\n"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    if refused:
        assert process.stderr.startswith(
            "error: The limit of this process is 1,073,741,823 bytes (`ulimit -d`); torch, FAISS and "
            "OpenBLAS need 1,073,741,824.\n"
        )
        assert process.stdout == ""
    else:
        assert process.stdout == "work\n"
