"""Blocks: equal content is written once, damage is detected, unused files are removed."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from unseen.training import blocks
from unseen.training.blocks import Damaged
from unseen.training.checkpoint import Checkpoints


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "SIZE", 64)


def _names(directory: Path) -> set[str]:
    return {path.stem for path in directory.glob("*.block")}


def test_reads_the_tensors_that_were_written(tmp_path: Path) -> None:
    tensors = {
        "rows": torch.arange(70, dtype=torch.float32).reshape(35, 2).t(),
        "scalar": torch.tensor(7),
        "flag": torch.tensor([True, False, True]),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "empty": torch.zeros(0, 4),
    }
    manifest = blocks.write(tmp_path, tensors, ())
    assert len(manifest["blocks"]) == -(-(280 + 8 + 3 + 6) // 64)
    loaded = blocks.read(tmp_path, manifest)
    assert list(loaded) == list(tensors)
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)
    assert blocks.read(tmp_path, blocks.write(tmp_path, {}, ())) == {}


@pytest.mark.parametrize("damage", ["missing", "another sha256"])
def test_names_a_damaged_block(tmp_path: Path, damage: str) -> None:
    manifest = blocks.write(tmp_path, {"x": torch.arange(20.0)}, ())
    path = tmp_path / f"{manifest['blocks'][0]}.block"
    path.unlink() if damage == "missing" else path.write_bytes(b"x" * 64)
    with pytest.raises(Damaged, match=rf"{path.name} .*{damage}"):
        blocks.read(tmp_path, manifest)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"blocks": ["../outside"]}, "'../outside' is not a sha256 of a block"),
        ({"tensors": [["x", "Tensor", [20]]]}, "tensor x has the unknown type 'Tensor'"),
        ({"tensors": [["x", "float32", [21]]]}, "tensor x is longer than its blocks"),
    ],
)
def test_refuses_a_manifest_that_does_not_fit_its_blocks(
    part: dict[str, Any], message: str, tmp_path: Path
) -> None:
    manifest = blocks.write(tmp_path, {"x": torch.arange(20.0)}, ())
    with pytest.raises(Damaged, match=re.escape(message)):
        blocks.read(tmp_path, manifest | part)


def _save(checkpoints: Checkpoints, iteration: int, memory: Tensor, best: dict[str, Tensor]) -> None:
    checkpoints.save(iteration, {"step": iteration}, {"memory": {"rows": memory}, "best": best})


def test_writes_only_the_rows_that_changed_and_removes_them_with_their_last_checkpoint(
    tmp_path: Path,
) -> None:
    checkpoints, best = Checkpoints(tmp_path, "me"), {"w": torch.ones(16)}
    memory = torch.arange(64.0).reshape(4, 16)  # one block per row
    written = []
    for iteration in range(1, 5):
        before = _names(tmp_path)
        _save(checkpoints, iteration, memory.clone(), best)
        written.append(len(_names(tmp_path) - before))
        memory[iteration % 4] += 100
    assert written == [5, 1, 1, 1]
    assert len(_names(tmp_path)) == 4 + 1 + 1  # rows of the newest, one of that before, the weights
    newest = Checkpoints(tmp_path, "me").newest()
    assert newest is not None
    memory[0] -= 100  # changed after the last checkpoint
    assert torch.equal(newest[1]["memory"]["rows"], memory)
    assert torch.equal(newest[1]["best"]["w"], best["w"])


def test_a_damaged_block_is_written_again_after_the_checkpoint_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = Checkpoints(tmp_path, "me")
    _save(first, 1, torch.zeros(16), {})
    before = _names(tmp_path)
    _save(first, 2, torch.ones(16), {})
    (damaged,) = _names(tmp_path) - before
    (tmp_path / f"{damaged}.block").write_bytes(b"")
    second = Checkpoints(tmp_path, "me")
    newest = second.newest()
    assert newest is not None
    assert newest[0] == 1
    assert f"00000002.pt is damaged ({damaged}.block has another sha256" in capsys.readouterr().err
    _save(second, 2, torch.ones(16), {})
    assert torch.equal(Checkpoints(tmp_path, "me").at(2)["memory"]["rows"], torch.ones(16))


def test_a_resumed_run_does_not_write_known_blocks_again(tmp_path: Path) -> None:
    _save(Checkpoints(tmp_path, "me"), 1, torch.zeros(16), {})
    (path,) = tmp_path.glob("*.block")
    inode = path.stat().st_ino
    resumed = Checkpoints(tmp_path, "me")
    assert resumed.newest() is not None
    _save(resumed, 2, torch.zeros(16), {})
    assert path.stat().st_ino == inode
    (tmp_path / "0.block").write_bytes(b"of a run that was killed before its checkpoint")
    _save(resumed, 3, torch.zeros(16), {})
    assert list(tmp_path.glob("*.block")) == [path]
