"""The message of a failed allocation: its size, the module, and the limit of the process."""

import errno
import os
import re
import resource
from pathlib import Path
from types import TracebackType

from unseen.runtime.errors import UserError

# RuntimeErrors of torch (also ENOMEM of mmap), of FAISS, of oneDNN, which gives no other reason, of Python
_THREAD = "can't start new thread"
_FAILED = re.compile(
    r"can't allocate memory|memory \(12\)$|std::bad_alloc|^could not create a (primitive|memory object)"
    f"|^{_THREAD}"
)
_BYTES = re.compile(r"(?:tried to allocate|(?:malloc|realloc) of size) (\d+)")  # of torch, of Arrow
# Of torch: its allocator (with the size and the device), CUDA itself, cuBLAS; and of FAISS.
_GPU = re.compile(
    r"out of memory\. Tried to allocate (?P<size>[\d.]+ \w+)\.( (?P<gpu>GPU \d+) has a total capacity of "
    r"(?P<capacity>[\d.]+ \w+))?|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED|cudaMalloc error"
)
_NUMPY = re.compile(r"Unable to allocate ([\d.]+ \w+) for an array")
_LIMITS = {"-v": resource.RLIMIT_AS, "-d": resource.RLIMIT_DATA}  # option of ulimit -> resource
_PROJECT = ("unseen.", "unseen_search.")
LEAST = 2**30  # bytes for torch, FAISS, OpenBLAS and their threads


def require_memory(least: int) -> None:
    """Raises UserError if a limit of this process is below `least` bytes.

    The libraries in C end the process, some without a message, if one of their own allocations fails. Their
    needs do not depend on the data, so that this check precedes the work.
    """
    for option, limit in _limits():
        if limit < least:
            raise UserError(
                f"The limit of this process is {limit:,} bytes (`ulimit {option}`); torch, FAISS and "
                f"OpenBLAS need {least:,}.",
                "Raise the limit. docs/reliability.md lists the memory of each stage.",
            )


def memory_problem(error: Exception) -> UserError | None:
    """The UserError for an allocation that failed in Python, numpy, torch, Arrow, FAISS or oneDNN, on a GPU,
    or for a thread without memory for its stack; None for another error."""
    text = str(error)
    if isinstance(error, RuntimeError) and (on_gpu := _GPU.search(text)):
        return _gpu_problem(on_gpu, _innermost(error.__traceback__))
    failed = isinstance(error, MemoryError)
    failed = failed or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    if not failed and not (isinstance(error, RuntimeError) and _FAILED.search(text)):
        return None
    octets, array = _BYTES.search(text), _NUMPY.search(text)
    size = f"{int(octets[1]):,} bytes" if octets else array[1] if array else "memory"
    size = "the stack of a thread" if text.startswith(_THREAD) else size
    module = _innermost(error.__traceback__)
    limits = [
        f" The limit of this process is {limit / 2**30:.2f} GiB (`ulimit {option}`)."
        for option, limit in _limits()
    ]
    return UserError(
        f"The memory does not suffice: {size} could not be allocated{f' in {module}' if module else ''}."
        + "".join(limits),
        "Raise the limit (`ulimit`, the memory of the container or job), end other programs, or use a "
        "machine with more memory. docs/reliability.md lists the memory of each stage.",
    )


def _gpu_problem(failed: re.Match[str], module: str | None) -> UserError:
    where = f" of {failed['gpu']}, {failed['capacity']}," if failed["capacity"] else " of the GPU"
    return UserError(
        f"The memory{where} does not suffice: {failed['size'] or 'memory'} could not be allocated"
        f"{f' in {module}' if module else ''}.",
        "End other programs on the GPU (`nvidia-smi`). For a training, set train.images_per_pass in "
        "params.yaml: the loss remains that of the batch (docs/recipes.md). For an export, lower "
        "export.batch_size.",
    )


def lacks_memory(error: Exception, path: Path) -> bool:
    """Whether Arrow failed to read an uncompressed file for lack of memory: the failed allocation is not
    larger than the file. A damaged file can request any size.
    """
    octets = _BYTES.search(str(error))
    return isinstance(error, MemoryError) and octets is not None and int(octets[1]) <= path.stat().st_size


def memory_of_host() -> int:
    """Bytes that this process can have: those of the machine, or a smaller limit."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([physical, *(limit for _, limit in _limits())])


def _limits() -> list[tuple[str, int]]:
    """(option of ulimit, bytes) of the limits of this process."""
    limits = [(option, resource.getrlimit(kind)[0]) for option, kind in _LIMITS.items()]
    return [(option, limit) for option, limit in limits if limit != resource.RLIM_INFINITY]


def _innermost(traceback: TracebackType | None) -> str | None:
    """The innermost module of the project in a traceback."""
    innermost = None
    while traceback is not None:
        module = str(traceback.tb_frame.f_globals.get("__name__", ""))
        if module.startswith(_PROJECT):
            innermost = module
        traceback = traceback.tb_next
    return innermost
