"""Reads ground truth that is published as a pickle, without executing code from the file.

A pickle is a program: it names functions and calls them. Three benchmarks are published only as pickles
(retrieval-SfM-120k, revisited Oxford and Paris). They contain lists, dicts, strings, numbers and arrays of
numbers. Therefore:
  1. every opcode is checked before anything is executed: only opcodes that build these values are allowed,
    and no
     index may enlarge the memo;
  2. the names that such files contain are bound to functions of this module; any other name is refused;
  3. arrays and dtypes are built here from their published bytes; numpy's unpickling is never called.
"""

import io
import pickle
import pickletools
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from unseen.runtime.errors import UserError

MAX_BYTES = 64 * 2**20  # the largest of the three files has a few MiB
MAX_OPCODES = 5_000_000
_OPCODES = frozenset(
    re.findall(
        r"\w+",
        "PROTO FRAME MARK STOP POP POP_MARK MEMOIZE PUT BINPUT LONG_BINPUT GET BINGET LONG_BINGET "
        "NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT "
        "STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES "
        "SHORT_BINBYTES BINBYTES8 "
        "EMPTY_LIST LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_DICT DICT SETITEM "
        "SETITEMS GLOBAL STACK_GLOBAL REDUCE BUILD",
    )
)
_PLAIN_DTYPE = re.compile(r"[iu][1248]|f[248]|b1|[US][1-9]\d{0,3}")  # numbers, and strings of one length


@dataclass(frozen=True)
class Node:
    """A value of a ground truth, with its location in the file. Each method raises UserError with `remedy` if
    the value has another type."""

    value: Any
    location: str
    remedy: str

    def __getitem__(self, key: str) -> "Node":
        """The value of a key."""
        if not isinstance(self.value, dict) or key not in self.value:
            content = type(self.value).__name__
            if isinstance(self.value, dict):
                content = f"keys {', '.join(map(str, self.value))}"
            raise UserError(f"{self.location} has no {key!r}; found: {content}.", self.remedy)
        return Node(self.value[key], f"{self.location}[{key!r}]", self.remedy)

    def items(self) -> list["Node"]:
        """The values of a list."""
        if not isinstance(self.value, list | tuple):
            raise UserError(f"{self.location} is not a list.", self.remedy)
        return [Node(item, f"{self.location}[{index}]", self.remedy) for index, item in enumerate(self.value)]

    def names(self) -> list[str]:
        """A list or 1-D array of different strings."""
        value = self.value
        if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "US":
            value = np.char.decode(value, "latin1").tolist() if value.dtype.kind == "S" else value.tolist()
        if not (isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)):
            raise UserError(f"{self.location} is not a list of names.", self.remedy)
        name, count = Counter(value).most_common(1)[0] if value else ("", 1)
        if count > 1:
            raise UserError(f"{self.location} contains {name!r} {count} times.", self.remedy)
        return list(value)

    def integers(self, below: int) -> Int[np.ndarray, " n"]:
        """A list or 1-D array of integers from 0 to `below` - 1."""
        value = self.value
        if isinstance(value, np.ndarray) and value.size == 0 and value.dtype.kind in "iuf":
            value = []  # numpy saves an empty list as an array of floats
        if isinstance(value, list | tuple) and all(type(item) is int and abs(item) < 2**62 for item in value):
            value = np.array(value, np.int64)
        if not (isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iu"):
            raise UserError(f"{self.location} is not a list of integers.", self.remedy)
        if value.size and not (value.min() >= 0 and value.max() < below):
            raise UserError(
                f"{self.location} has values from {value.min()} to {value.max()}, expected 0 to {below - 1}.",
                self.remedy,
            )
        return value.astype(np.int64)

    def floats(self, count: int) -> list[float]:
        """A list or array of `count` numbers."""
        value = self.value.ravel().tolist() if isinstance(self.value, np.ndarray) else self.value
        is_list = isinstance(value, list | tuple) and len(value) == count
        if not (is_list and all(type(item) in (int, float) for item in value)):
            raise UserError(f"{self.location} is not a list of {count} numbers.", self.remedy)
        return [float(item) for item in value]


def load(path: Path, remedy: str) -> Node:
    """The value in a pickle file: dict, list, tuple, str, bytes, int, float, bool, None and numpy arrays of
    numbers or strings.

    Array scalars become numbers. Strings of Python 2 are read as Latin-1. Raises UserError with `remedy` for
    a file that is missing, too large or damaged, and for a file with any other content.
    """
    if not path.is_file():
        raise UserError(f"{path} does not exist.", remedy)
    if (size := path.stat().st_size) > MAX_BYTES:
        raise UserError(f"{path} has {size:,} bytes; a ground truth has at most {MAX_BYTES:,}.", remedy)
    content = path.read_bytes()
    try:
        _check_opcodes(content)
        return Node(_with_arrays(_Reader(content).load(), {}), str(path), remedy)
    except _Refused as refusal:
        raise UserError(
            f"{path} was not read: it {refusal}, which a ground truth never does.", remedy
        ) from None
    except RecursionError:
        raise UserError(f"{path} was not read: it is nested deeper than a ground truth.", remedy) from None
    except (
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        TypeError,
        AttributeError,
        KeyError,
        IndexError,
        OverflowError,
    ) as error:
        raise UserError(f"{path} is not a readable pickle: {error}.", remedy) from None


class _Refused(Exception):
    """The file has content that is not allowed. The message completes a sentence that begins with the
    file."""


def _check_opcodes(content: bytes) -> None:
    stores = 0
    for number, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        if opcode.name not in _OPCODES:
            raise _Refused(f"uses the opcode {opcode.name}")
        if number > MAX_OPCODES:
            raise _Refused(f"has more than {MAX_OPCODES:,} opcodes")
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT"):
            stores += 1
            # Python numbers the memo from 0 or 1. The unpickler would allocate memory up to a larger index.
            if int(argument or 0) > stores:
                raise _Refused(f"stores item {argument} after {stores - 1}")


class _Function:
    """The function that a name in the file is bound to. It can be called but not changed."""

    __slots__ = ("call",)
    call: Callable[..., Any]

    def __init__(self, call: Callable[..., Any]) -> None:
        object.__setattr__(self, "call", call)

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)

    def __setattr__(self, name: str, value: Any) -> None:
        raise _Refused(f"sets the attribute {name}")


class _Dtype:
    """The unpickled form of a numpy dtype."""

    __slots__ = ("code", "order")

    def __init__(self, code: Any, *_: Any) -> None:
        if not (isinstance(code, str) and _PLAIN_DTYPE.fullmatch(code)):
            raise _Refused(f"contains an array of {code!r}")
        self.code, self.order = code, "="

    def __setstate__(self, state: Any) -> None:
        _, order, subtype, fields, kinds, *_ = state
        if order not in ("<", ">", "|", "=") or (subtype, fields, kinds) != (None, None, None):
            raise _Refused("contains an array of structures")
        self.order = order

    def numpy(self) -> np.dtype[Any]:
        return np.dtype(self.code).newbyteorder(self.order)  # type: ignore[arg-type]


class _Array:
    """The unpickled form of a numpy array. `value` is set when the file sets its state."""

    __slots__ = ("_to_bytes", "value")

    def __init__(self, to_bytes: Callable[[Any], bytes]) -> None:
        self._to_bytes = to_bytes
        self.value: np.ndarray | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, by_column, raw = state
        if not isinstance(dtype, _Dtype):
            raise ValueError("an array without a dtype")
        values = np.frombuffer(self._to_bytes(raw), dtype.numpy())
        self.value = values.reshape(shape, order="F" if by_column else "C")


class _Reader(pickle.Unpickler):
    """Python's unpickler with the functions above. One reader per file: the calls of one file may not make
    more bytes than the file has."""

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="latin1")
        self._remaining = len(content)
        array = _Function(lambda *_: _Array(self._to_bytes))
        scalar = _Function(lambda dtype, raw: np.frombuffer(self._to_bytes(raw), dtype.numpy())[0].item())
        self._functions = {
            "_codecs.encode": _Function(self._encode),
            "__builtin__.bytes": _Function(lambda: b""),  # protocols before 3 write empty bytes as this call
            "numpy.dtype": _Function(_Dtype),
            "numpy.ndarray": _Function(self._refuse_call),
            **{f"numpy.{core}.multiarray._reconstruct": array for core in ("core", "_core")},
            **{f"numpy.{core}.multiarray.scalar": scalar for core in ("core", "_core")},
        }

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in self._functions:
            raise _Refused(f"refers to {module}.{name}")
        return self._functions[f"{module}.{name}"]

    def _to_bytes(self, raw: Any) -> bytes:
        if isinstance(raw, bytes):
            return raw
        return self._encode(raw, "latin1")

    def _encode(self, text: Any, encoding: Any) -> bytes:
        """The function that protocols before 3 call to write bytes."""
        if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
            raise _Refused(f"encodes {type(text).__name__} as {encoding!r}")
        self._remaining -= len(text)
        if self._remaining < 0:
            raise _Refused("makes more bytes than it has")
        return text.encode("latin1")

    @staticmethod
    def _refuse_call(*_: Any) -> Any:
        raise _Refused("makes an array without its bytes")


def _with_arrays(value: Any, visited: dict[int, tuple[Any, Any]]) -> Any:
    """`value` with numpy arrays in place of `_Array`. Each container is visited once, because a few bytes can
    refer to one list a billion times.

    visited: the container and its result, by the id of the container. The entry keeps the container alive, so
    that its id remains unique.
    """
    if type(value) in (str, bytes, int, float, bool, type(None)):
        return value
    if isinstance(value, _Array) and value.value is not None:
        return value.value
    if type(value) not in (list, dict, tuple):
        raise _Refused(f"contains {_type_name(value)} in place of a value")
    if id(value) in visited:
        return visited[id(value)][1]
    visited[id(value)] = (value, value)
    if isinstance(value, list):
        value[:] = [_with_arrays(item, visited) for item in value]
    elif isinstance(value, dict):
        for key, item in value.items():
            if type(key) not in (str, int):
                raise _Refused(f"has a key of type {_type_name(key)}")
            value[key] = _with_arrays(item, visited)
    else:
        visited[id(value)] = (value, tuple(_with_arrays(item, visited) for item in value))
    return visited[id(value)][1]


def _type_name(value: Any) -> str:
    return type(value).__name__.strip("_").lower()
