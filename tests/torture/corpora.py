"""Public collections of broken and hostile files. They are never part of the project.

`python -m tests.torture.corpora DIR` downloads them with git, about 450 MB, at the commits below. The
campaign names a missing one as not run.
"""

import argparse
import subprocess
from pathlib import Path

# name -> repository on github.com, commit
CORPORA = {
    "libjpeg-turbo seed corpora": ("libjpeg-turbo/seed-corpora", "178c25b04972a5ebdc8216ba20ca201d013588e4"),
    "Pillow test images": ("python-pillow/Pillow", "4e5f09f533dbd0d87d39951f48b62f4d1a421cba"),
    "go-fuzz corpus": ("dvyukov/go-fuzz-corpus", "c42c1b2914c7503500996ee15927d3ab3d2ba968"),
    "image-rs": ("image-rs/image", "2c5368b8de2f76ae9d18bc0bcf2cd16c3164cefe"),
    "PngSuite": ("lunapaint/pngsuite", "8cd768dd0d0063195174d0d01cacbd5a7d1e5605"),
    "EXIF orientation examples": (
        "recurser/exif-orientation-examples",
        "219294e144531b0c01247913cb58b6f5531b5081",
    ),
    "zip-slip": ("snyk/zip-slip-vulnerability", "ebbca955730babf2ff9c08171d24afc2ba604788"),
    "corkami": ("corkami/pocs", "6d277c83efdceb6916ee8c6efe6ff0639cc6193f"),
    "picklescan": ("mmaitre314/picklescan", "f15d54da3dec9aa28a87ede82f87882bb80f1023"),
}


def folder_of(corpora: Path, name: str) -> Path:
    """The folder of a corpus: the name of its repository."""
    return corpora / CORPORA[name][0].rpartition("/")[2]


def files_of(folder: Path) -> list[Path]:
    """The regular files of a corpus, sorted, without those of git."""
    return sorted(
        path
        for path in folder.rglob("*")
        if ".git" not in path.relative_to(folder).parts and path.is_file() and not path.is_symlink()
    )


def fetch(corpora: Path) -> None:
    """Downloads the corpora that are missing."""
    for name, (repository, commit) in CORPORA.items():
        folder = folder_of(corpora, name)
        if folder.exists():
            continue
        print(f"fetch {name}", flush=True)
        folder.mkdir(parents=True)
        git = ["git", "-C", str(folder)]
        subprocess.run([*git, "init", "--quiet"], check=True)
        url = f"https://github.com/{repository}"
        subprocess.run([*git, "fetch", "--quiet", "--depth", "1", url, commit], check=True)
        subprocess.run([*git, "checkout", "--quiet", "FETCH_HEAD"], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Downloads public collections of broken files.")
    parser.add_argument("folder", type=Path)
    fetch(parser.parse_args().folder)


if __name__ == "__main__":
    main()
