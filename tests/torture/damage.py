"""Changes of the bytes of a file: flipped bits, extreme values, removed, repeated and inserted bytes, a cut,
a part of another file."""

import random
from collections.abc import Sequence

_EXTREME = (b"\0", b"\xff", b"\x7f", b"\x80", b"\0\0", b"\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\xff")


def damaged(files: Sequence[bytes], draw: random.Random) -> bytes:
    """One of the files with one to six changes."""
    content = bytearray(draw.choice(files))
    for _ in range(draw.choice((1, 1, 1, 2, 3, 6))):
        _change(content, files, draw)
    return bytes(content)


def _change(content: bytearray, files: Sequence[bytes], draw: random.Random) -> None:
    place = draw.randrange(len(content) + 1)
    size = draw.choice((1, 2, 4, 16, 100))
    kind = draw.randrange(8)
    if kind == 0 and place < len(content):
        content[place] ^= 1 << draw.randrange(8)
    elif kind == 1 and place < len(content):
        content[place] = draw.randrange(256)
    elif kind == 2:
        value = draw.choice(_EXTREME)
        content[place : place + len(value)] = value
    elif kind == 3:
        del content[place : place + size]
    elif kind == 4:
        content[place:place] = content[place : place + size]
    elif kind == 5:
        content[place:place] = draw.randbytes(size)
    elif kind == 6:
        del content[place:]
    else:
        other = draw.choice(files)
        start = draw.randrange(len(other) + 1)
        content[place : place + size] = other[start : start + size]
