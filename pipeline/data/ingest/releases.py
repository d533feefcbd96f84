"""The files of published data sets: names, sizes, hashes and links (releases.yaml)."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter
from ruamel.yaml import YAML

from unseen.runtime.errors import UserError
from unseen.runtime.settings import as_json

ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")  # suffixes


def archive_stem(name: str) -> str:
    """The name of a file without the suffix of an archive."""
    return name.removesuffix(next(filter(name.endswith, ARCHIVES), ""))


@dataclass(frozen=True)
class PublishedFile:
    """One file as its authors publish it. `url`: a direct link by the authors; `unpacked`: a path that exists
    beside the file after it was unpacked there."""

    name: str
    size: int | None = None  # bytes
    md5: str | None = None
    sha256: str | None = None
    url: str | None = None
    unpacked: str | None = None
    folder: str = ""  # within the folder of the data set

    @property
    def stem(self) -> str:
        """The name without the suffix of an archive. It identifies the archive also if it was packed again in
        another format."""
        return archive_stem(self.name)

    def description(self) -> str:
        """`CUB_200_2011.tgz (1,150,585,339 bytes, md5 97ee...)`."""
        size = [f"{self.size:,} bytes"] if self.size is not None else []
        hashes = [f"{kind} {value}" for kind, value in (("md5", self.md5), ("sha256", self.sha256)) if value]
        details = f" ({', '.join(size + hashes[:1])})" if size or hashes else ""
        return self.folder + self.name + details


@dataclass(frozen=True)
class Published:
    """A data set as published: its layouts (each is the complete set), its page, and advice for the case that
    no direct link works."""

    title: str
    page: str
    layouts: tuple[tuple[PublishedFile, ...], ...]
    advice: str = ""

    @property
    def files(self) -> tuple[PublishedFile, ...]:
        return tuple(file for layout in self.layouts for file in layout)

    @property
    def linked_layout(self) -> tuple[PublishedFile, ...] | None:
        """The first layout in which every file has a direct link, or None."""
        return next((layout for layout in self.layouts if all(file.url for file in layout)), None)

    def layouts_text(self) -> str:
        """The files of all layouts in one sentence."""
        return "; or ".join(" and ".join(file.description() for file in layout) for layout in self.layouts)


_TABLE = Path(__file__).with_suffix(".yaml")
PUBLISHED: dict[str, Published] = TypeAdapter(
    dict[str, Published], config=ConfigDict(strict=True, extra="forbid")
).validate_json(as_json(YAML(typ="safe").load(_TABLE.read_text(encoding="utf-8"))))


def missing_data_error(dataset: str, path: Path, problem: str) -> UserError:
    """An error whose remedy describes the files that `path` must contain. `problem` completes a sentence that
    begins with the path: "contains no images.txt"."""
    published = PUBLISHED[dataset]
    fetch = f"`unseen data {dataset}` downloads it to data/raw/{dataset}. " if published.linked_layout else ""
    return UserError(
        f"{path} {problem}.",
        f"{published.title} is published as {published.layouts_text()}. {fetch}"
        f"Its page is {published.page}. {published.advice}".rstrip(),
    )


def registry_key(published: Published) -> str:
    """The key of a data set in PUBLISHED."""
    return next(key for key, entry in PUBLISHED.items() if entry is published)


def published_details(files: Iterable[PublishedFile], name: str) -> str:
    """A sentence with the published size and hash of the file `name`, for the end of a message; empty if
    neither is known."""
    matches = [file for file in files if file.name == name and (file.size is not None or file.md5)]
    return f" The published file is {matches[0].description()}." if matches else ""
