"""The reader of pickles: it returns the types of a ground truth from any protocol, and refuses all other
content before any code is executed."""

import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unseen.data.ingest.files import unpickle
from unseen.data.ingest.files.unpickle import Node, load
from unseen.runtime.errors import UserError

REMEDY = "Fetch it again."


def written(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "truth.pkl"
    path.write_bytes(content)
    return path


def read(tmp_path: Path, content: bytes) -> Any:
    return load(written(tmp_path, content), REMEDY).value


class Calls:
    """Pickles as a call of `function(*arguments)`."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.function, self.arguments


class TestAllowedContent:
    @pytest.mark.parametrize("protocol", range(5))
    def test_reads_a_ground_truth_of_any_protocol(self, tmp_path: Path, protocol: int) -> None:
        truth = {
            "imlist": ["all_souls_000000", "münster"],
            "gnd": [
                {
                    "bbx": [136.5, 34.1, 648.5, 955.7],
                    "easy": np.array([3, 1]),
                    "hard": [],
                    "junk": np.array([], np.int32),
                }
            ],
            "more": (1, 2**40, -7, True, None, b"\xff\0", np.float64(0.5), np.int16(-3)),
        }
        value = read(tmp_path, pickle.dumps(truth, protocol))
        assert value["imlist"] == truth["imlist"]
        assert value["more"] == (1, 2**40, -7, True, None, b"\xff\0", 0.5, -3)
        assert type(value["more"][6]) is float
        assert type(value["more"][7]) is int
        assert value["gnd"][0]["bbx"] == [136.5, 34.1, 648.5, 955.7]
        assert value["gnd"][0]["easy"].tolist() == [3, 1]
        assert value["gnd"][0]["junk"].shape == (0,)

    @pytest.mark.parametrize("protocol", range(5))
    @pytest.mark.parametrize("dtype", ["i1", "u1", "<i4", ">i8", "f4", ">f8", "?"])
    @pytest.mark.parametrize("order", ["C", "F"])
    def test_preserves_type_shape_and_order_of_arrays(
        self, tmp_path: Path, protocol: int, dtype: str, order: Any
    ) -> None:
        array = np.asarray(np.arange(12).reshape(3, 4) % 2, dtype=dtype, order=order)
        value = read(tmp_path, pickle.dumps([array], protocol))[0]
        assert value.dtype == array.dtype
        assert np.array_equal(value, array)

    def test_reads_pickles_of_python_2(self, tmp_path: Path) -> None:
        # Protocol 2 of cPickle: strings are bytes (U), memo numbers begin at 1, the bytes of an array are a
        # string.
        content = b"\x80\x02}q\x01(U\x04cidsq\x02]q\x03(U\x03abcq\x04U\x03d\xe9fq\x05eU\x07clusterq\x06"
        content += (
            b"cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85U\x01b\x87Rq\x09"
        )
        content += b"(K\x01K\x02\x85cnumpy\ndtype\nq\nU\x02i4K\x00K\x01\x87Rq\x0b"
        content += b"(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        content += b"\x89U\x08\x07\x00\x00\x00\xfe\x00\x00\x00tbu."
        value = read(tmp_path, content)
        assert value["cids"] == ["abc", "déf"]
        assert value["cluster"].tolist() == [7, 254]

    def test_reads_arrays_of_strings(self, tmp_path: Path) -> None:
        value = read(
            tmp_path, pickle.dumps([np.array(["abc", "dé"]), np.array([b"x"]), np.array(["q"])[0]], 2)
        )
        assert value[0].tolist() == ["abc", "dé"]
        assert value[1].tolist() == [b"x"]
        assert value[2] == "q"

    def test_visits_shared_and_cyclic_containers_once(self, tmp_path: Path) -> None:
        value: Any = [1]
        for _ in range(60):  # 2^60 items when written out
            value = [value, (value, value)]
        value.append(value)
        value = read(tmp_path, pickle.dumps(value))
        assert value[2] is value
        assert value[0] is value[1][0] is value[1][1]


class TestRefusedContent:
    @pytest.mark.parametrize("protocol", range(5))
    @pytest.mark.parametrize(
        "wrap",
        [lambda bomb: bomb, lambda bomb: {"imlist": [("a", bomb)], "gnd": []}],
        ids=["plain", "nested"],
    )
    def test_refuses_a_call_of_the_shell(self, tmp_path: Path, protocol: int, wrap: Any) -> None:
        mark = tmp_path / "owned"
        content = pickle.dumps(wrap(Calls(os.system, f"touch {mark}")), protocol)
        with pytest.raises(
            UserError,
            match=(
                r"truth\.pkl was not read: it refers to posix\.system, which a ground truth never does\.\n  "
                r"Fetch it"
            ),
        ):
            read(tmp_path, content)
        assert not mark.exists()

    @pytest.mark.parametrize(
        "function",
        [eval, getattr, __import__, open, np.load, np.fromfile, np.frombuffer, pickle.loads, bytearray],
        ids=lambda f: f.__name__,
    )
    def test_refuses_other_names(self, tmp_path: Path, function: Any) -> None:
        with pytest.raises(UserError, match="refers to"):
            read(tmp_path, pickle.dumps([Calls(function, "1")]))

    def test_refuses_an_attribute_of_an_allowed_name(self, tmp_path: Path) -> None:
        content = b"\x80\x04\x8c\x05numpy\x8c\x0dndarray.dumps\x93."
        with pytest.raises(UserError, match=r"refers to numpy\.ndarray\.dumps"):
            read(tmp_path, content)

    @pytest.mark.parametrize(
        ("content", "opcode"),
        [
            (b"\x80\x02\x82\x01.", "EXT1"),
            (b"Pid\n.", "PERSID"),
            (b"(ios\nsystem\n.", "INST"),
            (b"(cos\nsystem\no.", "OBJ"),
            (b"\x80\x02cnumpy\nndarray\n)\x81.", "NEWOBJ"),
        ],
    )
    def test_refuses_other_opcodes(self, tmp_path: Path, content: bytes, opcode: str) -> None:
        with pytest.raises(UserError, match=f"uses the opcode {opcode},"):
            read(tmp_path, content)

    def test_refuses_an_array_of_objects(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="contains an array of 'O8'"):
            read(tmp_path, pickle.dumps(np.array([Calls(os.system, "true"), 1], object), 2))

    def test_refuses_an_array_of_structures(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="contains an array of 'V12'"):
            read(tmp_path, pickle.dumps(np.zeros(2, [("a", "i4"), ("b", "f8")]), 2))

    def test_refuses_fields_in_the_state_of_a_plain_dtype(self, tmp_path: Path) -> None:
        content = (
            b"\x80\x02cnumpy\ndtype\nU\x02i8K\x00K\x01\x87R(K\x03U\x01<N(U\x01at}U\x01aNsK\x08K\x08K\x00tb."
        )
        with pytest.raises(UserError, match="contains an array of structures"):
            read(tmp_path, content)

    @pytest.mark.parametrize("state", [b"}U\x04callK\x01s", b"N}U\x04callK\x01s\x86"], ids=["dict", "slots"])
    @pytest.mark.parametrize(
        "name", [b"cnumpy\ndtype\n", b"c_codecs\nencode\n", b"cnumpy.core.multiarray\n_reconstruct\n"]
    )
    def test_refuses_to_change_the_functions_of_names(
        self, tmp_path: Path, state: bytes, name: bytes
    ) -> None:
        with pytest.raises(
            UserError, match=r"sets the attribute call|is not a readable pickle|in place of a value"
        ):
            read(tmp_path, b"\x80\x02" + name + state + b"b.")
        assert read(tmp_path, pickle.dumps(np.arange(2), 2)).tolist() == [0, 1]

    @pytest.mark.parametrize("encoding", ["zip", "rot13", "utf-8"])
    def test_refuses_other_encodings(self, tmp_path: Path, encoding: str) -> None:
        content = (
            b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX"
            + struct.pack("<I", len(encoding))
            + encoding.encode()
            + b"\x86R."
        )
        with pytest.raises(UserError, match=f"encodes str as '{encoding}'"):
            read(tmp_path, content)

    def test_refuses_an_array_without_its_bytes(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="makes an array without its bytes"):
            read(tmp_path, b"\x80\x02cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85R.")
        with pytest.raises(UserError, match="contains array in place of a value"):
            read(tmp_path, b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n)R.")

    def test_refuses_an_array_without_a_dtype(self, tmp_path: Path) -> None:
        state = b"(K\x01K\x01\x85K\x00\x89U\x01xtb."
        with pytest.raises(UserError, match="is not a readable pickle: an array without a dtype"):
            read(tmp_path, b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n)R" + state)

    def test_refuses_keys_that_are_neither_names_nor_numbers(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="has a key of type tuple"):
            read(tmp_path, pickle.dumps({"gnd": [{(1, 2): 3}]}))


class TestSizeLimits:
    def test_refuses_a_file_above_the_size_limit(self, tmp_path: Path) -> None:
        path = tmp_path / "truth.pkl"
        with path.open("wb") as file:
            file.truncate(unpickle.MAX_BYTES + 1)
        with pytest.raises(UserError, match="67,108,865 bytes; a ground truth has at most 67,108,864"):
            load(path, REMEDY)

    def test_refuses_too_many_opcodes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(unpickle, "MAX_OPCODES", 100)
        with pytest.raises(UserError, match="has more than 100 opcodes"):
            read(tmp_path, pickle.dumps(list(range(200))))

    def test_refuses_a_memo_index_that_would_allocate_gigabytes(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="stores item 4294967295 after 0"):
            read(tmp_path, b"\x80\x02]r\xff\xff\xff\xff.")

    def test_refuses_calls_that_make_more_bytes_than_the_file_has(self, tmp_path: Path) -> None:
        text = b"X" + struct.pack("<I", 5000) + b"a" * 5000
        once = b"h\x00h\x01h\x02\x86R"
        content = (
            b"\x80\x02c_codecs\nencode\nq\x000" + text + b"q\x010U\x06latin1q\x020](" + 1000 * once + b"e."
        )
        with pytest.raises(UserError, match="makes more bytes than it has"):
            read(tmp_path, content)

    @pytest.mark.parametrize("length", [b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff"])
    def test_refuses_a_string_longer_than_the_file(self, tmp_path: Path, length: bytes) -> None:
        with pytest.raises(UserError, match="is not a readable pickle"):
            read(tmp_path, b"\x80\x02X" + length + b"abc.")

    def test_refuses_an_array_longer_than_its_bytes(self, tmp_path: Path) -> None:
        content = pickle.dumps(np.arange(4, dtype=np.int32), 2).replace(
            b"K\x04\x85", b"J\xff\xff\xff\x7f\x85"
        )
        with pytest.raises(UserError, match="is not a readable pickle: cannot reshape"):
            read(tmp_path, content)

    @pytest.mark.slow
    def test_refuses_too_deep_nesting(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="is nested deeper"):
            read(tmp_path, b"\x80\x02" + 200_000 * b"]" + 199_999 * b"a" + b".")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no pickle",
        b"\x80\x02](K\x01K",
        pickle.dumps(list(range(1000)))[:-20],
        b"\x80\x02a.",
        b"\x80\x02h\x07.",
    ],
)
def test_refuses_damaged_files(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UserError, match=r"truth\.pkl (is not a readable pickle|uses the opcode)"):
        read(tmp_path, content)


def test_refuses_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"truth\.pkl does not exist\.\n  Fetch it again"):
        load(tmp_path / "truth.pkl", REMEDY)


class TestNode:
    def test_errors_name_the_location_in_the_file(self) -> None:
        truth = Node({"gnd": [{"easy": [0]}, {"easy": [9]}]}, "truth.pkl", REMEDY)
        assert truth["gnd"].items()[0]["easy"].integers(4).tolist() == [0]
        location = r"truth\.pkl\['gnd'\]\[1\]\['easy'\]"
        expected = rf"{location} has values from 9 to 9, expected 0 to 3\.\n  Fetch it again"
        with pytest.raises(UserError, match=expected):
            truth["gnd"].items()[1]["easy"].integers(4)

    def test_refuses_missing_keys_and_other_types(self) -> None:
        with pytest.raises(UserError, match=r"truth\.pkl has no 'a'; found: keys b, c"):
            Node({"b": 1, "c": 2}, "truth.pkl", REMEDY)["a"]
        with pytest.raises(UserError, match="has no 'a'; found: list"):
            Node([1], "truth.pkl", REMEDY)["a"]
        with pytest.raises(UserError, match=r"truth\.pkl is not a list\."):
            Node({"b": 1}, "truth.pkl", REMEDY).items()

    @pytest.mark.parametrize("value", [[3, 0], (3, 0), np.array([3, 0], np.uint8)])
    def test_reads_lists_and_arrays_of_integers(self, value: Any) -> None:
        assert Node(value, "easy", REMEDY).integers(4).tolist() == [3, 0]

    @pytest.mark.parametrize("value", [[], np.array([]), np.zeros((1, 0))])
    def test_reads_empty_lists_and_arrays_of_integers(self, value: Any) -> None:
        value = Node(value, "easy", REMEDY).integers(4)
        assert value.dtype == np.int64
        assert value.shape == (0,)

    @pytest.mark.parametrize(
        "value",
        [[0, True], [0.0], np.array([0.5]), np.array([[1]]), "01", None, [2**70], {"a": 1}, np.array(["1"])],
    )
    def test_refuses_values_that_are_not_integers(self, value: Any) -> None:
        with pytest.raises(UserError, match="easy is not a list of integers"):
            Node(value, "easy", REMEDY).integers(4)

    @pytest.mark.parametrize(
        ("value", "limits"),
        [([1, 4], "1 to 4"), ([-1, 2], "-1 to 2"), (np.array([2**64 - 1], np.uint64), f"{2**64 - 1} to")],
    )
    def test_refuses_integers_out_of_range(self, value: Any, limits: str) -> None:
        with pytest.raises(UserError, match=f"easy has values from {limits}"):
            Node(value, "easy", REMEDY).integers(4)

    @pytest.mark.parametrize("value", [("a", "é"), [], np.array(["a", "é"]), np.array([b"a", b"\xe9"])])
    def test_reads_lists_and_arrays_of_names(self, value: Any) -> None:
        assert Node(value, "imlist", REMEDY).names() == ["a", "é"][: len(value)]

    def test_refuses_repeated_names_and_other_types(self) -> None:
        with pytest.raises(UserError, match="imlist contains 'a' 2 times"):
            Node(["a", "b", "a"], "imlist", REMEDY).names()
        for value in (["a", 1], "ab", None, np.arange(3)):
            with pytest.raises(UserError, match="imlist is not a list of names"):
                Node(value, "imlist", REMEDY).names()

    @pytest.mark.parametrize("value", [[1, 2.5], (1.0, 2.5), np.array([[1.0, 2.5]])])
    def test_reads_lists_and_arrays_of_floats(self, value: Any) -> None:
        value = Node(value, "bbx", REMEDY).floats(2)
        assert value == [1.0, 2.5]
        assert type(value[0]) is float

    @pytest.mark.parametrize(
        "value", [[1.0], [1.0, 2.0, 3.0], ["1", 2.0], [True, 1.0], None, "12", np.array(["a", "b"])]
    )
    def test_refuses_values_that_are_not_floats(self, value: Any) -> None:
        with pytest.raises(UserError, match="bbx is not a list of 2 numbers"):
            Node(value, "bbx", REMEDY).floats(2)
