"""A pretended GPU: tensors that claim the device cuda:0 and hold their values in the memory of the host.

It runs the code for GPUs without one. An operation that mixes a tensor of the device with one of the host is
refused, as CUDA does, and each wait of the host, copy and launch is recorded. Kernels are those of the CPU.
What it cannot show is in docs/scale.md.

    work = run(function, argument)          calls function(argument) in a new process with the device
    with recorded() as record: ...          in that process: what happens in the block

torch asks C++ code for the device of a stream and for its kind of accelerator. pretended.cpp answers; it is
compiled once per version of torch, in 2 s. A process that has loaded it keeps the device, so tests use new
processes.
"""

import concurrent.futures.thread
import contextlib
import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import traceback
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.utils import cpp_extension
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    return_and_correct_aliasing,
)
from torch.utils._pytree import tree_leaves, tree_map

from tests.device.fused_batch_norm import KERNELS
from tests.training.workers import run_workers

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")
SOURCE = Path(__file__).with_suffix(".cpp")
_aten = torch.ops.aten
_READS = {  # operations whose result or its size the host reads
    _aten._local_scalar_dense,  # item, int, float, bool
    _aten.nonzero,
    _aten.masked_select,
    _aten.bincount,
    _aten.unique_dim,
    _aten._unique,
    _aten._unique2,
    _aten.unique_consecutive,
    _aten.equal,
    _aten.is_nonzero,
    _aten._linalg_check_errors,  # of cholesky, inv, solve
}
_INDEXED = {_aten.index, _aten.index_put, _aten.index_put_, _aten._index_put_impl_}
_WITHOUT_KERNEL = {
    "view", "_unsafe_view", "reshape", "permute", "transpose", "t", "expand", "slice", "select", "unsqueeze",
    "squeeze", "detach", "alias", "as_strided", "split", "split_with_sizes", "unbind", "empty", "empty_like",
    "empty_strided", "new_empty", "new_empty_strided", "resize_", "diagonal", "unfold", "_reshape_alias",
    "lift_fresh", "set_", "_local_scalar_dense",
}  # fmt: skip


@dataclass
class Record:
    """waits: operations for which the host waits. awaited: copies to the host that were queued before and are
    awaited. pinned: bytes of each copy into pinned memory of the host; of each copy between the devices
    likewise. launches: operations on the device by name; a GPU starts a kernel for most of them and several
    for some. on_host: those on tensors of the host. refused: operations that mix devices."""

    waits: list[str] = field(default_factory=list)
    awaited: int = 0
    pinned: list[int] = field(default_factory=list)
    pinned_to_device: list[int] = field(default_factory=list)
    pageable_to_device: list[int] = field(default_factory=list)
    to_host: list[int] = field(default_factory=list)
    launches: Counter[str] = field(default_factory=Counter)
    on_host: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)


_records: list[Record] = []
_pinned: "weakref.WeakSet[torch.UntypedStorage]" = weakref.WeakSet()


@contextlib.contextmanager
def recorded() -> Iterator[Record]:
    """What happens on the device in the block, in all threads."""
    record = Record()
    _records.append(record)
    try:
        yield record
    finally:
        _records.remove(record)


def library() -> Path:
    """The compiled pretended.cpp, in the environment of this Python. Fails in CI without a compiler."""
    if torch.version.cuda is not None:
        pytest.skip("this build of torch has CUDA: `pytest -m gpu` runs on its GPU")
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        assert not os.environ.get("CI"), "the pretended GPU needs a compiler of C++: install g++"
        pytest.skip("no compiler of C++ for the pretended GPU")
    content = SOURCE.read_bytes() + f"{torch.__version__} {sys.platform}".encode()
    built = Path(sys.prefix) / "pretended_gpu" / f"{hashlib.sha256(content).hexdigest()[:16]}.so"
    if not built.exists():
        built.parent.mkdir(exist_ok=True)
        unfinished = built.with_suffix(f".{os.getpid()}")
        flags = ["-O0", "-shared", "-fPIC", "-std=c++20"]
        flags.append(f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}")
        flags += [f"-I{folder}" for folder in cpp_extension.include_paths()]
        linked = [f"-L{folder}" for folder in cpp_extension.library_paths()]
        command = [compiler, *flags, str(SOURCE), "-o", str(unfinished), *linked, "-lc10", "-ltorch_cpu"]
        compiled = subprocess.run(command, capture_output=True, text=True, check=False)
        assert compiled.returncode == 0, compiled.stderr
        unfinished.replace(built)
    return built


def run(function: Callable[..., Any], *arguments: Any) -> Any:
    """`function(*arguments)` in a new process with the device. An error there is raised here."""
    return run_workers(_one, 1, library(), function, arguments)[0]


def run_two(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """`function(rank, *arguments)` in two processes that share a gloo group, each with a device."""
    return run_workers(_one_of_two, 2, library(), function, arguments)


def _one(rank: int, world: int, built: Path, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    with present(built):
        return function(*arguments)


def _one_of_two(
    rank: int, world: int, built: Path, function: Callable[..., Any], arguments: Sequence[Any]
) -> Any:
    with present(built):
        return function(rank, *arguments)


@contextlib.contextmanager
def present(built: Path) -> Iterator[None]:
    """torch finds one GPU in the block. The process must end after it: `built` cannot be unloaded."""
    ctypes.CDLL(str(built), mode=ctypes.RTLD_GLOBAL)
    run_item = concurrent.futures.thread._WorkItem.run

    def run_in_thread(*arguments: Any) -> Any:
        with _Device():  # a mode of torch belongs to a thread
            return run_item(*arguments)

    replaced: list[tuple[Any, dict[str, Any]]] = [
        (concurrent.futures.thread._WorkItem, {"run": run_in_thread}),
        (Tensor, {"pin_memory": _pin, "is_pinned": lambda tensor, *_: _is_pinned(tensor)}),
        (
            torch.cuda,
            {
                "is_available": lambda: True,
                "device_count": lambda: 1,
                "current_device": lambda: 0,
                "set_device": lambda device: None,
                "get_device_name": lambda device=None: "pretended",
                "get_device_capability": lambda device=None: (9, 0),
                "is_bf16_supported": lambda including_emulation=True: True,
                "Stream": _Stream,
                "Event": _Event,
                "current_stream": lambda device=None: _Stream(),
                "stream": lambda stream: contextlib.nullcontext(),
                "synchronize": lambda device=None: _wait("cuda.synchronize"),
                "manual_seed": lambda seed: None,
                "manual_seed_all": lambda seed: None,
                "get_rng_state": lambda device=None: torch.zeros(16, dtype=torch.uint8),
                "set_rng_state": lambda state, device=None: None,
                "empty_cache": lambda: None,
                "_lazy_init": lambda: None,
            },
        ),
    ]
    overwrites = torch.__future__.get_overwrite_module_params_on_conversion()
    with contextlib.ExitStack() as stack:
        for owner, values in replaced:
            stack.enter_context(mock.patch.multiple(owner, **values))
        # A parameter cannot become one of another class in place, and a tensor made of values of the host is
        # copied to the device after it is made.
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        torch._C._set_only_lift_cpu_tensors(True)
        try:
            with _Device():
                yield
        finally:
            torch.__future__.set_overwrite_module_params_on_conversion(overwrites)
            torch._C._set_only_lift_cpu_tensors(False)


class _OnDevice(Tensor):
    """A tensor on the device, whose values are those of `values`."""

    values: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> "_OnDevice":
        # A view, made in inference mode, of a tensor that was made outside must be no tensor of that mode.
        with torch.inference_mode(False):
            wrapper: _OnDevice = torch.Tensor._make_wrapper_subclass(
                cls,
                values.size(),
                strides=values.stride(),
                storage_offset=values.storage_offset(),
                dtype=values.dtype,
                layout=values.layout,
                device=GPU,
                requires_grad=False,
            )
        wrapper.values = values
        return wrapper

    def __repr__(self) -> str:  # type: ignore[override]
        return f"on the pretended GPU: {self.values!r}"

    def tolist(self) -> Any:
        _wait("tolist")
        return self.values.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Copy it to the host first.")

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.numpy()

    def data_ptr(self) -> int:
        return self.values.data_ptr()

    def record_stream(self, stream: Any) -> None:
        pass

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, operator: Any, types: Any, arguments: Sequence[Any] = (), options: Any = None
    ) -> Any:
        return _dispatched(operator, arguments, options or {})


class _Device(TorchDispatchMode):
    def __torch_dispatch__(
        self, operator: Any, types: Any, arguments: Sequence[Any] = (), options: Any = None
    ) -> Any:
        return _dispatched(operator, arguments, options or {})


class _Stream:
    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        pass

    def synchronize(self) -> None:
        _wait("stream.synchronize")


class _Event:
    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def record(self, stream: Any = None) -> None:
        pass

    def synchronize(self) -> None:
        for record in _records:
            record.awaited += 1


def _dispatched(operator: Any, arguments: Sequence[Any], options: dict[str, Any]) -> Any:
    """The result of an operation on the values, on the device if its tensors or its options say so."""
    packet, name = operator.overloadpacket, operator.overloadpacket.__name__
    if name == "record_stream":
        return None
    if name == "_has_compatible_shallow_copy_type":
        return False
    if packet is _aten.to:  # in inference mode; elsewhere only its parts arrive
        with _Device():
            return operator.decompose(*arguments, **options)
    tensors = [value for value in tree_leaves((arguments, options)) if isinstance(value, Tensor)]
    on_device = [tensor for tensor in tensors if isinstance(tensor, _OnDevice)]
    named = options.get("device")
    requested = None if named is None else torch.device(named)
    pinned = bool(options.get("pin_memory"))

    def computed(function: Any = operator) -> Any:
        of_host = {key: value for key, value in options.items() if key not in ("device", "pin_memory")}
        if requested is not None:
            of_host["device"] = CPU if requested.type == "cuda" else requested
        return function(*tree_map(_values_of, tuple(arguments)), **tree_map(_values_of, of_host))

    if packet is _aten._to_copy:
        source = arguments[0]
        target = source.device if requested is None else requested
        waits = not options.get("non_blocking")
        _count_copy(source, target, waits, name)
        return _on_device(computed()) if target.type == "cuda" else computed()
    if packet is _aten.copy_:
        target, source = arguments[0], arguments[1]
        _count_copy(source, target.device, not (len(arguments) > 2 and arguments[2]), name)
        computed()
        return target
    if not on_device and (requested is None or requested.type != "cuda"):
        if tensors and name not in _WITHOUT_KERNEL:
            for record in _records:
                record.on_host[name] += 1
        result = computed()
        if pinned:
            _pinned.add(result.untyped_storage())
        return result
    _refuse_mixed(packet, name, arguments, tensors, on_device)
    if packet in _READS or (packet in _INDEXED and _has_mask(arguments[1])):
        _wait(name)
    if packet is _aten.repeat_interleave and options.get("output_size") is None:
        _wait(name)
    if name not in _WITHOUT_KERNEL:
        for record in _records:
            record.launches[name] += 1
    result = computed(KERNELS.get(name, operator))
    if requested is not None and requested.type != "cuda":
        return result
    result = tree_map(_on_device, result)
    return result if name in KERNELS else return_and_correct_aliasing(operator, arguments, options, result)


def _refuse_mixed(
    packet: Any,
    name: str,
    arguments: Sequence[Any],
    tensors: Sequence[Tensor],
    on_device: Sequence[Tensor],
) -> None:
    """Raises RuntimeError for a tensor of the host beside one of the device.

    CUDA allows a number, and indices of a tensor on the device, for whose copy the host waits."""
    if not on_device:
        return
    of_host = [tensor for tensor in tensors if not isinstance(tensor, _OnDevice)]
    refused: Sequence[Tensor] = [tensor for tensor in of_host if tensor.dim()]
    if packet in _INDEXED:
        indices = [index for index in arguments[1] if index is not None and not isinstance(index, _OnDevice)]
        if isinstance(arguments[0], _OnDevice):
            for index in indices:
                _count_copy(index, GPU, True, name)
            refused = [value for value in arguments[2:] if isinstance(value, Tensor)]
            refused = [value for value in refused if value.dim() and not isinstance(value, _OnDevice)]
        else:
            refused = of_host
    if refused:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in refused)
        problem = (
            f"Expected all tensors to be on the same device: {name} of cuda:0 and cpu {shapes}, {_place()}"
        )
        for record in _records:
            record.refused.append(problem)
        raise RuntimeError(problem)


def _count_copy(source: Tensor, target: torch.device, waits: bool, name: str) -> None:
    from_device, to_device = isinstance(source, _OnDevice), target.type == "cuda"
    size = source.numel() * source.element_size()
    for record in _records:
        if from_device and to_device:
            record.launches[name] += 1
        elif from_device:
            record.to_host.append(size)
        elif to_device:
            (record.pinned_to_device if _is_pinned(source) else record.pageable_to_device).append(size)
        else:
            record.on_host[name] += 1
    if waits and from_device != to_device:
        _wait(name)


def _wait(name: str) -> None:
    for record in _records:
        record.waits.append(f"{name}, {_place()}")


def _place() -> str:
    """The innermost line of the project that is being executed."""
    frames = [frame for frame in traceback.extract_stack() if "/unseen/" in frame.filename]
    outside = [frame for frame in frames if not frame.filename.endswith("device/pretended.py")]
    return f"{outside[-1].filename.rpartition('/unseen/')[2]}:{outside[-1].lineno}" if outside else "outside"


def _pin(tensor: Tensor, *_: Any) -> Tensor:
    if isinstance(tensor, _OnDevice):
        raise RuntimeError("cannot pin 'torch.cuda.FloatTensor': only tensors of the host can be pinned")
    if _is_pinned(tensor):
        return tensor
    with _disable_current_modes():  # the copy is no operation of the program
        copy = tensor.clone(memory_format=torch.preserve_format)
    _pinned.add(copy.untyped_storage())
    for record in _records:
        record.pinned.append(copy.nbytes)
    return copy


def _is_pinned(tensor: Tensor) -> bool:
    return not isinstance(tensor, _OnDevice) and tensor.untyped_storage() in _pinned


def _has_mask(indices: Sequence[Tensor | None]) -> bool:
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices)


def _values_of(value: Any) -> Any:
    return value.values if isinstance(value, _OnDevice) else value


def _on_device(value: Any) -> Any:
    return _OnDevice(value) if isinstance(value, Tensor) and not isinstance(value, _OnDevice) else value
