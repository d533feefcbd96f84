"""Counts what makes a host wait for a GPU: reads of values and of data-dependent sizes, and copies of values
of the host to a device. It counts on a CPU too, where torch does not wait."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from unseen.runtime.device import host

_METHODS = ("tolist", "numpy", "cpu")  # of a tensor; they reach no operator on a CPU
_CREATIONS = (
    torch.tensor,
    torch.as_tensor,
)  # of a tensor from values of the host; on a device if they name one
_aten = torch.ops.aten
_READS = {
    _aten._local_scalar_dense,  # item, int, float, bool
    _aten.nonzero,
    _aten.masked_select,
    _aten.bincount,
    _aten.unique_dim,
    _aten._unique2,
    _aten.unique_consecutive,
    _aten.equal,
    _aten.is_nonzero,
    _aten.repeat_interleave,
    _aten._linalg_check_errors,  # of cholesky, inv, solve
}
_INDEXED = {_aten.index, _aten.index_put, _aten.index_put_, _aten._index_put_impl_}


def pretend_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Selects the code that GPUs run, on the CPU."""
    original = host.reads_wait
    for name, module in list(sys.modules.items()):
        if name.startswith("unseen.") and getattr(module, "reads_wait", None) is original:
            monkeypatch.setattr(module, "reads_wait", lambda tensor: True)


class HostReads:
    """A context in which waits are counted, also those of the backward pass. `names`: one per wait."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._modes = (_Functions(self.names), _Operators(self.names))

    @property
    def count(self) -> int:
        return len(self.names)

    def __enter__(self) -> "HostReads":
        for mode in self._modes:
            mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(*error)


class _Functions(TorchFunctionMode):
    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.names = names

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, arguments: Sequence[Any] = (), options: Any = None
    ) -> Any:
        name = getattr(function, "__name__", "")
        read = name in _METHODS and getattr(Tensor, name) is function
        created = function is Tensor.new_tensor or (function in _CREATIONS and "device" in (options or {}))
        if read or created:
            self.names.append(name)
        return function(*arguments, **(options or {}))


class _Operators(TorchDispatchMode):
    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.names = names

    def __torch_dispatch__(
        self, operator: Any, types: Any, arguments: Sequence[Any] = (), options: Any = None
    ) -> Any:
        packet = operator.overloadpacket
        if packet in _READS or (packet in _INDEXED and _has_mask(arguments[1])):
            self.names.append(str(operator))
        return operator(*arguments, **(options or {}))


def _has_mask(indices: Sequence[Tensor | None]) -> bool:
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices)
