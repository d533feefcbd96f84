"""Removes the metadata of packages whose installation was interrupted, so that pip installs them again.

pip regards a package with metadata as installed. It writes the file INSTALLER after all other files.
"""

import shutil
import sys
import sysconfig
from pathlib import Path


def main() -> None:
    site = Path(sys.argv[1] if len(sys.argv) > 1 else sysconfig.get_path("purelib"))
    for metadata in sorted(site.glob("*.dist-info")):
        if not (metadata / "INSTALLER").is_file():
            print(f"== {metadata.name} was not installed completely and is installed again")
            shutil.rmtree(metadata)


if __name__ == "__main__":
    main()
