"""The readers of tables of any tool: Parquet, and Arrow as a file or a stream. The writer of Arrow files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from unseen.runtime.errors import UserError
from unseen.runtime.files import atomic_file, regular
from unseen.runtime.memory import lacks_memory

ARROW = (".arrow", ".arrows", ".feather", ".ipc")
TABLES = (".parquet", ".pq", *ARROW)
_FILE = b"ARROW1"  # the first bytes of an Arrow file; a stream has none


def table_files(path: Path) -> list[Path]:
    """`path`, or the Parquet and Arrow files below a folder, sorted by name, without hidden ones. Raises
    UserError if there is none."""
    if not path.is_dir():
        return [path]
    visible = (
        file
        for file in path.rglob("*")
        if file.suffix.lower() in TABLES
        and not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
    )
    if not (files := sorted(visible)):
        raise UserError(f"{path} contains no {', '.join(TABLES)} file.", "Correct the path.")
    return files


def read_table(path: Path, remedy: str) -> pa.Table:
    """The table of a Parquet file, or of an Arrow file or stream (suffix in ARROW).

    Raises UserError if it is missing or damaged.
    """
    with _complete(path, remedy):
        table = _mapped(path) if path.suffix.lower() in ARROW else pq.read_table(path, memory_map=False)
        table.validate(full=True)  # offsets beyond the data would end the process
        table.column_names  # noqa: B018  UnicodeDecodeError here, and not at the first use
        return table


def read_schema(path: Path, remedy: str) -> pa.Schema:
    """The schema of a table. Raises as `read_table` does."""
    with _complete(path, remedy):
        is_arrow = path.suffix.lower() in ARROW
        schema: pa.Schema = _mapped(path).schema if is_arrow else pq.read_schema(path)
        schema.names  # noqa: B018  UnicodeDecodeError here, and not at the first use
        return schema


def batches(path: Path, columns: list[str], rows: int, remedy: str) -> Iterator[pa.RecordBatch]:
    """Columns of a table in at most `rows` rows at a time, so that it may be larger than memory. Raises as
    `read_table` does."""
    with _complete(path, remedy):
        if path.suffix.lower() in ARROW:
            each = iter(_mapped(path).select(columns).to_batches(rows))
        else:
            each = pq.ParquetFile(path, memory_map=False).iter_batches(rows, columns=columns)
    while True:
        with _complete(path, remedy):
            if (batch := next(each, None)) is None:
                return
            batch.validate(full=True)
        yield batch


def write_arrow(path: Path, rows: pa.RecordBatch | pa.Table) -> None:
    """Replaces a file by rows, uncompressed. Raises UserError as `atomic_file` does."""
    with (
        atomic_file(path) as aside,
        pa.OSFile(str(aside), "wb") as sink,
        pa.ipc.new_file(sink, rows.schema) as writer,
    ):
        writer.write(rows)


def _mapped(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as file:
        is_file = file.read(len(_FILE)) == _FILE
        file.seek(0)
        return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(file).read_all()


@contextmanager
def _complete(path: Path, remedy: str) -> Iterator[None]:
    """Raises UserError for an error of a file that is missing or damaged."""
    if not path.exists():
        raise UserError(f"{path} is missing.", remedy)
    try:
        regular(path)
        yield
    except (pa.ArrowException, OSError, ValueError, LookupError) as error:
        if lacks_memory(error, path):
            raise
        if isinstance(error, MemoryError):  # a damaged file can request any size
            remedy += " If it is not damaged, the process needs more memory."
        raise UserError(f"{path} cannot be read: {str(error).splitlines()[0]}.", remedy) from error
