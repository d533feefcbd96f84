"""The sabotages of the product: each replaces a text within one function."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from tests.torture.results import ROOT


@dataclass(frozen=True)
class Sabotage:
    """`old` occurs once in the source of `function`, a name within `module`.

    operation: of operations.py, whose file operations fail; None: no operation executes the function.
    every_point: each of its file operations fails, instead of a sample: few lead to the changed code.
    neighbours, remedies: cases of these campaigns that execute the function.
    determinism: whether its runs execute the function.
    kills: the stage that executes the function and is killed.
    clusters: the number of kills of this campaign.
    unfound: why no campaign finds it, and the test that does.
    """

    name: str
    module: str
    function: str
    old: str
    new: str
    operation: str | None = None
    every_point: bool = False
    neighbours: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    determinism: bool = False
    kills: str = ""
    clusters: int = 0
    unfound: str = ""

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Changes the function during the block, also where other modules of this process imported it."""
        function = _plain(import_module(self.module), self.function)
        before, function.__code__ = function.__code__, self.code()
        try:
            yield
        finally:
            function.__code__ = before

    def edit(self, project: Path) -> None:
        """Changes the function in the files of a copy of the project."""
        function = _plain(import_module(self.module), self.function)
        path = project / Path(inspect.getfile(function)).resolve().relative_to(ROOT)
        source = inspect.getsource(function)
        indent = source[: len(source) - len(source.lstrip())]
        text = path.read_text(encoding="utf-8")
        changed = text.replace(source, textwrap.indent(self._source(), indent), 1)
        path.write_text(changed, encoding="utf-8")

    def _source(self) -> str:
        """The changed source. Raises ValueError if the function does not contain `old` once."""
        function = _plain(import_module(self.module), self.function)
        source = textwrap.dedent(inspect.getsource(function))
        if source.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.function} has {source.count(self.old)} times {self.old!r}")
        return source.replace(self.old, self.new)

    def code(self) -> CodeType:
        """The changed code."""
        tree = ast.parse(self._source())
        definition = tree.body[0]
        assert isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef)
        definition.decorator_list = []
        module = compile(tree, f"<{self.name}>", "exec", dont_inherit=True)
        codes = [each for each in module.co_consts if isinstance(each, CodeType)]
        return next(code for code in codes if code.co_name == definition.name)


def _plain(module: Any, name: str) -> FunctionType:
    """The function without its decorators."""
    value = module
    for part in name.split("."):
        value = inspect.getattr_static(value, part)
    function = inspect.unwrap(value)
    assert isinstance(function, FunctionType), name
    return function


_FILES, _RESUME = "unseen.runtime.files", "unseen.training.resume"
_KILLED_TRAINING = "train@parts-ms-0"  # of kills.py
_RECORDS, _TRAIN, _BUILD = "sweep records", "train", "catalog build"
_SEALED = "pipeline/runtime/sealed.py: Run `unseen doctor --verify`, then"  # messages of remedies.py
_REBUILT, _FORCED = f"{_SEALED} `rm {{}} && dvc repro`.", f"{_SEALED} `dvc repro --force --sing"

SABOTAGES = (
    # durability
    Sabotage("file not synced", _FILES, "atomic_file", "_sync(partial)", "pass", _RECORDS),
    Sabotage(
        "file renamed before its fsync",
        _FILES,
        "atomic_file",
        "_sync(partial)\n                partial.replace(path)",
        "partial.replace(path)\n                _sync(path)",
        _RECORDS,
        every_point=True,
    ),
    Sabotage(
        "folder of a new file not synced",
        _FILES,
        "atomic_file",
        "_sync(path.parent)",
        "pass",
        _RECORDS,
        unfound="the loss of power keeps the names of files; `test_files.py`",
    ),
    Sabotage("files of a directory not synced", _FILES, "atomic_directory", "_sync(file)", "pass", _RECORDS),
    Sabotage(
        "old directory deleted before the rename",
        _FILES,
        "atomic_directory",
        "path.replace(_replaced(path))",
        "shutil.rmtree(path)",
        _RECORDS,
        every_point=True,
        kills="ingest@parts",
    ),
    Sabotage(
        "JSON written in place",
        _FILES,
        "write_json",
        "with atomic_file(path) as partial:",
        "with contextlib.nullcontext(path) as partial:",
        _RECORDS,
    ),
    Sabotage(
        "partial file kept after an error",
        _FILES,
        "atomic_file",
        "partial.unlink(missing_ok=True)",
        "pass",
        _RECORDS,
        every_point=True,
    ),
    Sabotage(
        "partial files of killed writers kept",
        _FILES,
        "remove_partial_files",
        "path.unlink(missing_ok=True)",
        "pass",
        _RECORDS,
    ),
    Sabotage(
        "partial directories of killed writers kept",
        _FILES,
        "atomic_directory",
        "_remove_directory(entry)",
        "pass",
        _RECORDS,
        kills="ingest@parts",
    ),
    Sabotage(
        "replaced directory not restored",
        _FILES,
        "restore_directory",
        "replaced.replace(path)",
        "pass",
        _RECORDS,
        unfound="readers and the next writer look there, too; `test_files.py`",
    ),
    Sabotage(
        "replaced directory not deleted",
        _FILES,
        "restore_directory",
        "_remove_directory(partial)",
        "pass",
        _RECORDS,
    ),
    Sabotage("wrong mode of files", _FILES, "atomic_file", "0o666", "0o600", _RECORDS),
    Sabotage(
        "partial file not locked",
        _FILES,
        "atomic_file",
        "held(partial)",
        "contextlib.nullcontext()",
        _RECORDS,
        unfound="needs two writers of one file; `test_files.py`",
    ),
    Sabotage(
        "lock of another process ignored",
        "unseen.runtime.flock",
        "acquired",
        "file system without locks\n            yield False",
        "file system without locks\n            yield True",
        _RECORDS,
        neighbours=("`owner` that a process of the same user holds",),
    ),
    Sabotage(
        "named pipe opened with waiting",
        "unseen.runtime.flock",
        "acquired",
        "_WITHOUT_WAITING",
        "os.O_RDONLY",
        neighbours=("named pipe as `owner`",),
    ),
    Sabotage(
        "named pipe read",
        _FILES,
        "regular",
        "path.exists() and not path.is_file()",
        "False",
        neighbours=("named pipe as resolved settings",),
    ),
    # errors
    Sabotage(
        "missing permission not explained",
        _FILES,
        "system_problem",
        "(errno.EACCES, errno.EPERM, errno.EROFS)",
        "(errno.EROFS,)",
        _RECORDS,
        neighbours=("unreadable settings",),
    ),
    Sabotage(
        "error of a file swallowed",
        _FILES,
        "unwritable_is_an_error",
        "raise problem from error",
        "pass",
        _RECORDS,
    ),
    Sabotage(
        "full disk not explained",
        _FILES,
        "system_problem",
        "if number in (errno.ENOSPC, errno.EDQUOT):",
        "if number == errno.EDQUOT:",
        _RECORDS,
        neighbours=("full disk, then a larger one",),
    ),
    Sabotage(
        "failed device not explained",
        _FILES,
        "system_problem",
        "(errno.EIO, errno.ESTALE, errno.ENXIO)",
        "(errno.ESTALE, errno.ENXIO)",
        _RECORDS,
    ),
    Sabotage(
        "error of the writer of checkpoints swallowed",
        "unseen.training.background",
        "Background.wait",
        "call.result()",
        "pass",
        _TRAIN,
        unfound="outputs stay right; an error costs steps; `test_background.py`",
        determinism=True,
    ),
    # the state of a training
    Sabotage(
        "digest of a checkpoint not compared",
        "unseen.training.checkpoint",
        "_read",
        "size <= _DIGEST or file.read() != body.digest()",
        "size <= _DIGEST",
        _TRAIN,
    ),
    Sabotage(
        "digest of a block not compared",
        "unseen.training.blocks",
        "read",
        "hashlib.sha256(block).hexdigest() != digest",
        "False",
        _TRAIN,
        unfound="no campaign damages a block; `test_blocks.py`",
    ),
    Sabotage(
        "weights not restored",
        _RESUME,
        "_resume",
        'run.method.load_state_dict(saved["method"] | saved["memories"])',
        "pass",
        _TRAIN,
        kills=_KILLED_TRAINING,
        clusters=2,
    ),
    Sabotage(
        "optimizer not restored",
        _RESUME,
        "_resume",
        'run.learner.optimizer.load_state_dict(saved["optimizer"])',
        "pass",
        _TRAIN,
    ),
    Sabotage(
        "best weights not restored",
        _RESUME,
        "_resume",
        ", **{name: saved[name] for name in _WEIGHTS}",
        "",
        _TRAIN,
    ),
    Sabotage(
        "step restored one too early",
        _RESUME,
        "_resume",
        "run.record = record",
        "run.record = record\n    record.iteration -= 1",
        _TRAIN,
        kills=_KILLED_TRAINING,
    ),
    Sabotage(
        "late checkpoint: copies after the next step",
        _RESUME,
        "save",
        "checkpoints.save(iteration, state, parts)",
        "checkpoints.save(iteration, *_copies(run))",
        _TRAIN,
        unfound="the writer seldom starts after the next step; `test_background.py`",
        determinism=True,
        kills=_KILLED_TRAINING,
        clusters=2,
    ),
    Sabotage(
        "old checkpoints removed before the new one",
        "unseen.training.checkpoint",
        "Checkpoints.save",
        'content = {"identity"',
        '[path.unlink() for path in self.directory.glob("*.pt")]\n    content = {"identity"',
        _TRAIN,
        unfound="outputs stay right; a kill costs steps; `test_checkpoint.py`",
        determinism=True,
        kills=_KILLED_TRAINING,
    ),
    Sabotage(
        "unfinished state removed in place",
        "unseen.training.state",
        "remove_states",
        'path.replace(path.with_name(f".{path.name}.{uuid.uuid4().hex}.removed"))',
        "shutil.rmtree(path)",
        _TRAIN,
        unfound="the outputs are complete before the removal; `test_state.py`",
        determinism=True,
    ),
    Sabotage(
        "steps not seeded",
        "unseen.training.step",
        "seed_step",
        "torch.default_generator.manual_seed(value)",
        "pass",
        _TRAIN,
        determinism=True,
        kills=_KILLED_TRAINING,
    ),
    Sabotage(
        "last weights stored as the best",
        "unseen.training.outputs",
        "write_outputs",
        "load_saved_state(run.method, record.best_weights)",
        "pass",
        _TRAIN,
        unfound="every run has the same wrong output; `test_loop.py`",
        determinism=True,
    ),
    Sabotage(
        "identity of a run without its code",
        "unseen.training.state",
        "identity",
        '"code": job.code,',
        '"code": "",',
        _TRAIN,
        unfound="needs other code in the second run; `test_state.py`",
    ),
    Sabotage(
        "images changed by their thread",
        "unseen.data.loader",
        "TrainLoader._job",
        "crop_for_training(picture, keys[index],",
        "crop_for_training(picture, threading.get_ident(),",
        determinism=True,
    ),
    # digests of results
    Sabotage(
        "digest of weights not compared",
        "unseen.methods.artifact",
        "load_method",
        "recorded not in (None, digest)",
        "False",
        _BUILD,
        remedies=(f"{_REBUILT} (2)",),
    ),
    Sabotage(
        "digest of embeddings not compared",
        "unseen.data.embeddings",
        "read",
        '(digest := _sha256(rows)) != (written := stated(b"sha256"))',
        "False",
        remedies=(f"{_REBUILT} (0)",),
    ),
    Sabotage(
        "digests of tables and shards not compared",
        "unseen.data.shards",
        "Shards._require_sha256",
        "(digest := sha256_of(path)) != expected",
        "False",
    ),
    Sabotage(
        "digest of an image not compared",
        "unseen.data.shards",
        "Shards._compare",
        "digest != expected",
        "False",
    ),
    Sabotage(
        "seal of a history not compared",
        "unseen.runtime.sealed",
        "read_sealed_csv",
        ' or seal != _sha256(body).encode() + b"\\n"',
        "",
        remedies=(f"{_FORCED} (0)",),
    ),
    Sabotage(
        "digests of an evaluation not compared",
        "unseen.runtime.sealed",
        "require_digests",
        "path.name != DIGESTS and sha256_of(path) != recorded.get(path.name)",
        "False",
        remedies=(f"{_FORCED} (1)",),
    ),
    Sabotage(
        "digests of a catalog not compared",
        "unseen_search.catalog.files",
        "verify_file",
        "sha256_of(path) != digest",
        "False",
        _BUILD,
    ),
    # untrusted files
    Sabotage(
        "errors of a damaged catalog not explained",
        "unseen_search.catalog.files",
        "read_part",
        "except (OSError, ValueError, RuntimeError, pa.ArrowInvalid) as error:",
        "except OSError as error:",
        _BUILD,
    ),
    Sabotage(
        "limit of pixels removed",
        "unseen.data.decode",
        "_refuse_bomb",
        "width * height > MAX_PIXELS",
        "False",
        unfound="the memory of a case is limited, too; `test_decode.py`",
    ),
    Sabotage(
        "errors of decoders not explained",
        "unseen.data.decode",
        "decode_with_pillow",
        "except Exception as error:",
        "except OSError as error:",
    ),
    Sabotage(
        "damaged JPEGs decoded",
        "unseen.data.decode",
        "decode_jpeg",
        '"RGB", buffer=buffer, **size',
        '"RGB", buffer=buffer, strict=False, **size',
        unfound="a picture of others has no digest; `test_decode.py`",
    ),
    Sabotage(
        "memo of a pickle not limited",
        "unseen.data.ingest.files.unpickle",
        "_check_opcodes",
        "int(argument or 0) > stores",
        "False",
    ),
    Sabotage(
        "checksum of a zip member not compared",
        "unseen.data.ingest.files.archive",
        "Zip._pieces",
        "checksum != crc",
        "False",
    ),
    Sabotage(
        "errors of damaged tables not explained",
        "unseen.data.tables",
        "_complete",
        "except (pa.ArrowException, OSError, ValueError, LookupError) as error:",
        "except OSError as error:",
    ),
    Sabotage(
        "damaged rows of an unfinished build kept",
        "unseen.frozen.store",
        "_checked",
        "table.validate(full=True)",
        "pass",
        unfound="the sha256 of the rows, which is compared next, finds the same damage",
    ),
    # the service
    Sabotage(
        "no time limit of an upload",
        "unseen_search.service.requests",
        "photos_of",
        "asyncio.timeout(settings.upload_seconds)",
        "asyncio.timeout(None)",
    ),
    Sabotage(
        "no size limit of an upload",
        "unseen_search.service.requests",
        "photos_of",
        "limit = settings.largest_photo",
        "limit = 2**40",
    ),
)
