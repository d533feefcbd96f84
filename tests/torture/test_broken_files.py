"""A sample of the campaign of public broken files, on a small corpus of its own."""

import io
import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.torture.broken_files import READERS
from tests.torture.corpora import folder_of
from tests.torture.readers import IMAGES
from tests.torture.results import ROOT
from tests.torture.seeds import images
from tools.docs.reliability import _broken_files


def hostile(name: str) -> bytes:
    """An archive with a member that leaves its folder."""
    stream = io.BytesIO()
    if name.endswith(".zip"):
        with zipfile.ZipFile(stream, "w") as archive:
            archive.writestr("../../outside.jpg", b"x")
    else:
        with tarfile.open(fileobj=stream, mode="w") as tar:
            tar.addfile(tarfile.TarInfo("../../outside.jpg"))
    return stream.getvalue()


@pytest.mark.slow
def test_every_reader_reads_or_refuses_every_file(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "picklescan")
    (folder / ".git").mkdir(parents=True)
    (folder / ".git/HEAD").write_text("not a file of the corpus")
    contents = {
        "slip.zip": hostile("slip.zip"),
        "slip.tar": hostile("slip.tar"),
        "code.pkl": b"cos\nsystem\n(S'touch outside'\ntR.",
        "empty": b"",
        "image.jpg": images()[0],
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    state = tmp_path / "state.json"
    command = [sys.executable, "-m", "tests.torture.broken_files", str(tmp_path), "picklescan"]
    subprocess.run([*command, "--state", str(state)], cwd=ROOT, check=True, capture_output=True)
    results = json.loads(state.read_text())
    result = results["picklescan"]
    assert result["violations"] == {}
    assert (result["files"], result["read"] + result["refused"]) == (5, 5 * len(READERS))
    assert result["read"] == len(IMAGES), "only the image is read, by the readers of images"
    text = "\n".join(_broken_files(results))
    assert f"| picklescan | 5 | {len(IMAGES)} |" in text
    assert "| PngSuite | not run |" in text
