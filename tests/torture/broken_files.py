"""Public broken files: `python -m tests.torture.broken_files DIR`. tests.torture.corpora downloads them.

Every file of every corpus is given to every reader of readers.py, whatever its name. The limits and the
meaning of a violation are those of limited.py. The campaign continues where it was stopped.
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.torture import results
from tests.torture.corpora import CORPORA, files_of, folder_of
from tests.torture.limited import Case, Counts, check
from tests.torture.readers import ARCHIVES, CHECKPOINTS, IMAGES, MODULES, Read, read_labels

CHUNK = 500  # files between two records of the progress
STATE = results.RESULTS / "broken_files.json"
READERS: dict[str, Read] = {
    **{f"image, {name}": read for name, read in IMAGES.items()},
    **{f"archive, {name}": read for name, read in ARCHIVES.items()},
    "CSV": read_labels,
    **{f"checkpoint, {name}": read for name, read in CHECKPOINTS.items()},
}
_MODULES = [name for kind in ("images", "archives", "CSVs", "checkpoints") for name in MODULES[kind]]


def read_files(files: Sequence[Path], folder: Path, counts: Counts, readers: Mapping[str, Read]) -> None:
    """Gives each file to each reader."""
    cases: list[Case] = [
        (f"{path.relative_to(folder)}: {name}", (name, path)) for path in files for name in readers
    ]

    def read(content: tuple[str, Path]) -> None:
        name, path = content
        readers[name](path.read_bytes())

    with tempfile.TemporaryDirectory(prefix="unseen-broken-") as scratch:
        check(cases, read, Path(scratch), counts)


def campaign(corpora: Path, names: Sequence[str], state: Path) -> None:
    """Reads the files that the results lack."""
    recorded = results.load(state)
    for name in names or CORPORA:
        folder = folder_of(corpora, name).resolve()
        result = results.current(recorded, name, _MODULES)
        files = files_of(folder) if folder.is_dir() else []
        result["files"] = len(files)
        counts = Counts(**{key: result[key] for key in vars(Counts()) if key in result})
        for start in range(counts.cases // len(READERS), len(files), CHUNK):
            read_files(files[start : start + CHUNK], folder, counts, READERS)
            result |= vars(counts)
            results.save(state, recorded)
        results.save(state, recorded)
        print(f"{name}: {len(files):,} files, {len(counts.violations)} violations", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Public broken files are read or refused.")
    parser.add_argument("corpora", type=Path, help="the folder of tests.torture.corpora")
    parser.add_argument("names", nargs="*", help=f"some of: {', '.join(CORPORA)}")
    parser.add_argument("--state", type=Path, default=STATE, help="file of the results")
    arguments = parser.parse_args()
    campaign(arguments.corpora, arguments.names, arguments.state)


if __name__ == "__main__":
    main()
