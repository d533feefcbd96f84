"""Ground truth that is published as a pickle, read without trusting it.

A pickle is a program: it names functions and calls them. Three benchmarks come as nothing else
(retrieval-SfM-120k, revisited Oxford and Paris), and what they hold is lists, dicts, strings, numbers and
arrays of numbers. So:
  1. every opcode is looked at before anything runs: only those that build these values pass, and no index may
    make the memo grow;
  2. the six names that such files contain stand for functions of this file; any other name ends the reading;
  3. arrays and dtypes are rebuilt here from their published bytes, numpy's own unpickling is never called.
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

from pipeline.runtime.errors import UserError

MAX_BYTES = 64 * 2**20  # the largest of the three takes a few MiB
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
_PLAIN = re.compile(r"[iu][1248]|f[248]|b1|[US][1-9]\d{0,3}")  # numbers, and strings of one length


@dataclass(frozen=True)
class Node:
    """A value of a ground truth, and where it stands. Every reading of it raises UserError, ending in
    `remedy`, where it is something else."""

    value: Any
    where: str
    remedy: str

    def __getitem__(self, key: str) -> "Node":
        """The value of a key."""
        if not isinstance(self.value, dict) or key not in self.value:
            found = (
                f"keys {', '.join(map(str, self.value))}"
                if isinstance(self.value, dict)
                else type(self.value).__name__
            )
            raise UserError(f"{self.where} has no {key!r}; found: {found}.", self.remedy)
        return Node(self.value[key], f"{self.where}[{key!r}]", self.remedy)

    def items(self) -> list["Node"]:
        """The values of a list."""
        if not isinstance(self.value, list | tuple):
            raise UserError(f"{self.where} is no list.", self.remedy)
        return [Node(item, f"{self.where}[{number}]", self.remedy) for number, item in enumerate(self.value)]

    def names(self) -> list[str]:
        """A list or 1-D array of different strings."""
        value = self.value
        if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "US":
            value = np.char.decode(value, "latin1").tolist() if value.dtype.kind == "S" else value.tolist()
        if not (isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)):
            raise UserError(f"{self.where} is no list of names.", self.remedy)
        name, times = Counter(value).most_common(1)[0] if value else ("", 1)
        if times > 1:
            raise UserError(f"{self.where} names {name!r} {times} times.", self.remedy)
        return list(value)

    def integers(self, below: int) -> Int[np.ndarray, " n"]:
        """A list or 1-D array of integers from 0 to `below` - 1."""
        value = self.value
        if (
            isinstance(value, np.ndarray) and value.size == 0 and value.dtype.kind in "iuf"
        ):  # an empty list, saved as an array, is one of floats
            value = []
        if isinstance(value, list | tuple) and all(type(item) is int and abs(item) < 2**62 for item in value):
            value = np.array(value, np.int64)
        if not (isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iu"):
            raise UserError(f"{self.where} is no list of integers.", self.remedy)
        if value.size and not (value.min() >= 0 and value.max() < below):
            raise UserError(
                f"{self.where} runs from {value.min()} to {value.max()}, expected 0 to {below - 1}.",
                self.remedy,
            )
        return value.astype(np.int64)

    def floats(self, count: int) -> list[float]:
        """A list or array of `count` numbers."""
        value = self.value.ravel().tolist() if isinstance(self.value, np.ndarray) else self.value
        if not (
            isinstance(value, list | tuple)
            and len(value) == count
            and all(type(item) in (int, float) for item in value)
        ):
            raise UserError(f"{self.where} is no list of {count} numbers.", self.remedy)
        return [float(item) for item in value]


def load(path: Path, remedy: str) -> Node:
    """The value in a pickle file: dict, list, tuple, str, bytes, int, float, bool, None and numpy arrays of
    numbers or strings.

    Array scalars become numbers, strings that Python 2 wrote are read as Latin-1. Raises UserError, ending in
    `remedy`, for a missing or larger file, for one that asks for anything else, and for one that is damaged.
    """
    if not path.is_file():
        raise UserError(f"{path} does not exist.", remedy)
    if (size := path.stat().st_size) > MAX_BYTES:
        raise UserError(f"{path} has {size:,} bytes; no ground truth has more than {MAX_BYTES:,}.", remedy)
    content = path.read_bytes()
    try:
        _look_through(content)
        return Node(_settled(_Reader(content).load(), {}), str(path), remedy)
    except _Refused as refusal:
        raise UserError(f"{path} {refusal}, which no ground truth needs: it was not read.", remedy) from None
    except RecursionError:
        raise UserError(f"{path} is nested deeper than any ground truth: it was not read.", remedy) from None
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
    pass


def _look_through(content: bytes) -> None:
    kept = 0
    for number, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        if opcode.name not in _OPCODES:
            raise _Refused(f"uses the opcode {opcode.name}")
        if number > MAX_OPCODES:
            raise _Refused(f"has more than {MAX_OPCODES:,} opcodes")
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT"):
            kept += 1
            if (
                int(argument or 0) > kept
            ):  # Python numbers them from 0 or 1; memory for an index far ahead would be taken at once
                raise _Refused(f"stores item {argument} after {kept - 1}")


class _Name:
    """What a name in the file stands for: it can be called, where there is something to call, and in no way
    changed."""

    __slots__ = ("call",)
    call: Callable[..., Any]

    def __init__(self, call: Callable[..., Any]) -> None:
        object.__setattr__(self, "call", call)

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)

    def __setattr__(self, name: str, value: Any) -> None:
        raise _Refused(f"sets the attribute {name}")


class _Dtype:
    __slots__ = ("code", "order")

    def __init__(self, code: Any, *_: Any) -> None:
        if not (isinstance(code, str) and _PLAIN.fullmatch(code)):
            raise _Refused(f"holds an array of {code!r}")
        self.code, self.order = code, "="

    def __setstate__(self, state: Any) -> None:
        _, order, subtype, fields, kinds, *_ = state
        if order not in ("<", ">", "|", "=") or (subtype, fields, kinds) != (None, None, None):
            raise _Refused("holds an array of structures")
        self.order = order

    def numpy(self) -> np.dtype[Any]:
        return np.dtype(self.code).newbyteorder(self.order)  # type: ignore[arg-type]


class _Array:
    __slots__ = ("_octets", "value")

    def __init__(self, octets: Callable[[Any], bytes]) -> None:
        self._octets = octets
        self.value: np.ndarray | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, by_column, raw = state
        if not isinstance(dtype, _Dtype):
            raise ValueError("an array without a dtype")
        self.value = np.frombuffer(self._octets(raw), dtype.numpy()).reshape(
            shape, order="F" if by_column else "C"
        )


class _Reader(pickle.Unpickler):
    """Python's unpickler with the names above. One per file: bytes that calls make may together not exceed
    the file."""

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="latin1")
        self._left = len(content)
        rebuild = _Name(lambda *_: _Array(self._octets))
        scalar = _Name(lambda dtype, raw: np.frombuffer(self._octets(raw), dtype.numpy())[0].item())
        self._names = {
            "_codecs.encode": _Name(self._encode),
            "__builtin__.bytes": _Name(lambda: b""),  # how protocols before 3 write no bytes at all
            "numpy.dtype": _Name(_Dtype),
            "numpy.ndarray": _Name(self._not_called),
            **{f"numpy.{core}.multiarray._reconstruct": rebuild for core in ("core", "_core")},
            **{f"numpy.{core}.multiarray.scalar": scalar for core in ("core", "_core")},
        }

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in self._names:
            raise _Refused(f"asks for {module}.{name}")
        return self._names[f"{module}.{name}"]

    def _octets(self, raw: Any) -> bytes:
        if isinstance(raw, bytes):
            return raw
        return self._encode(raw, "latin1")

    def _encode(self, text: Any, encoding: Any) -> bytes:
        """How protocols before 3 write bytes."""
        if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
            raise _Refused(f"encodes {type(text).__name__} as {encoding!r}")
        self._left -= len(text)
        if self._left < 0:
            raise _Refused("makes more bytes than it has")
        return text.encode("latin1")

    @staticmethod
    def _not_called(*_: Any) -> Any:
        raise _Refused("makes an array without its bytes")


def _settled(value: Any, seen: dict[int, tuple[Any, Any]]) -> Any:
    """`value` with real arrays in it. Each container is visited once: a few bytes can refer to one list a
    billion times."""
    if type(value) in (str, bytes, int, float, bool, type(None)):
        return value
    if isinstance(value, _Array) and value.value is not None:
        return value.value
    if type(value) not in (list, dict, tuple):
        raise _Refused(f"holds {type(value).__name__.strip('_').lower()} where a value is due")
    if id(value) in seen:
        return seen[id(value)][1]
    seen[id(value)] = (value, value)  # kept alive: an id is unique among the living
    if isinstance(value, list):
        value[:] = [_settled(item, seen) for item in value]
    elif isinstance(value, dict):
        for key, item in value.items():
            if type(key) not in (str, int):
                raise _Refused(f"has a key of type {type(key).__name__.strip('_').lower()}")
            value[key] = _settled(item, seen)
    else:
        seen[id(value)] = (value, tuple(_settled(item, seen) for item in value))
    return seen[id(value)][1]
