"""The messages with a command: situations in which each is printed, or why its command is not executed."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.torture.remedies import Message, Situation, printed

INSTALLS = "installs a package; a test compares the extra with pyproject.toml"
NETWORK = "needs the network"
CLUSTER = "needs a cluster"
OTHER_DATA = "needs data or a machine that the miniature project lacks"
CHOICE = "describes a choice of the user; nothing is damaged"
NO_REMEDY = "names a command, and is no remedy"
MINUTES = "its command takes minutes"
OTHER_RESULTS = "its command computes other results, as the user wants"


class Entry(NamedTuple):
    """A message, by its module and the begin of its text."""

    module: str
    begin: str
    outcome: str | tuple[Situation, ...]


def flipped(name: str) -> Callable[[Path], None]:
    """One bit of a file, as a disk flips it: size and times are equal."""
    return lambda project: _flip(project / name)


def _flip(path: Path) -> None:
    content, status = bytearray(path.read_bytes()), path.stat()
    content[len(content) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def cut(name: str) -> Callable[[Path], None]:
    def fault(project: Path) -> None:
        (project / name).chmod(0o644)
        os.truncate(project / name, (project / name).stat().st_size // 2)

    return fault


def removed(name: str) -> Callable[[Path], None]:
    def fault(project: Path) -> None:
        path = project / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return fault


def replaced(name: str, old: str, new: str) -> Callable[[Path], None]:
    def fault(project: Path) -> None:
        text = (project / name).read_text(encoding="utf-8")
        if text.count(old) < 1:
            raise ValueError(f"{name} does not contain {old}")
        (project / name).chmod(0o644)
        (project / name).write_text(text.replace(old, new, 1), encoding="utf-8")

    return fault


def also_in_cache(name: str) -> Callable[[Path], None]:
    """Flips a bit of a file, and of its object in DVC's cache."""

    def fault(project: Path) -> None:
        content = (project / name).read_bytes()
        objects = [path for path in (project / ".dvc/cache/files/md5").rglob("*") if path.is_file()]
        (same,) = [path for path in objects if path.read_bytes() == content]
        _flip(same)
        _flip(project / name)

    return fault


MODEL, EMBEDDINGS = "data/models/parts/ms/0", "data/embeddings/parts/ms/0"
POSITIONS, METRICS = "data/positions/parts/ms/0.arrow", "data/metrics/parts/ms/0.json"
EVALUATION, SHARDS = "data/evaluation/parts/ms/0", "data/shards/parts"
STAGE = "python -m unseen.stages."
EXPORT, REPORT, VERIFY = f"{STAGE}export parts ms 0", f"{STAGE}report", "unseen doctor --verify"
RESOLVED = "data/resolved/export/parts/ms.json"
WEIGHTS, TEST = f"{MODEL}/weights.safetensors", f"{EMBEDDINGS}/test.arrow"
EVALUATE = f"{STAGE}evaluate parts ms 0"
CATALOG = "data/catalog"
OWN = f"--network test_resnet --weights {WEIGHTS}"
INDEX = f"unseen index photos {CATALOG} --model {MODEL} --labels"
FIND = f"unseen find {CATALOG} photos -k 1 --json"
PHOTOS = """python - <<'END'
from pathlib import Path
from unseen.data.shards import Shards
shards = Shards("data/shards/parts")
for row in shards.rows("test").tolist():
    path = Path(f"photos/class {shards.labels[row]}/{row}.png")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(shards.image(row).tobytes())
END
"""


def uncommitted(project: Path) -> None:
    """An object in DVC's cache that nothing names."""
    path = project / ".dvc/cache/files/md5/e4/d909c290d0fb1ca068ffaddf22cbd0"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"The quick brown fox jumps over the lazy dog.")


def lost(project: Path) -> None:
    """An evaluation, and DVC's cache."""
    for name in (EVALUATION, ".dvc/cache/files"):
        shutil.rmtree(project / name)


def no_axes(project: Path) -> None:
    params = project / "params.yaml"
    params.write_text(params.read_text(encoding="utf-8").replace("\nrun:", "\nruns:"), encoding="utf-8")


def damaged_and_staged(project: Path) -> None:
    """A bit of a shard that a training copies to a local disk."""
    replaced("params.yaml", "stage_shards:", "stage_shards: ../staged")(project)
    flipped(f"{SHARDS}/shard-00000.arrow")(project)


MADE = "../made"
# The function that each writer uses, with the error of a full disk.
FULL_DISK = """python - <<'END'
import errno
from pathlib import Path
from unseen.runtime.files import unwritable_is_an_error
from unseen.runtime.stage import report_errors
with report_errors(), unwritable_is_an_error(Path("data/report")):
    raise OSError(errno.ENOSPC, "No space left on device")
END
"""

TABLE = (
    Entry("pipeline/cli/study.py", "starts at: `unseen study {}`, which", NO_REMEDY),
    Entry("pipeline/cli/at_revision.py", "`git log", (Situation("unseen diff nowhere", again=False),)),
    Entry(
        "pipeline/cli/at_revision.py",
        "`dvc repro` at that",
        (
            Situation(
                "unseen diff HEAD",
                lost,
                "dvc remote add --default --quiet store ../store && dvc push --quiet",
                {"fetch --all-commits": f"fetch --all-commits && dvc checkout {EVALUATION}"},
            ),
        ),
    ),
    Entry(
        "pipeline/cli/claims.py",
        "{}`unseen claims --list`",
        (Situation("unseen claims none --photos data", again=False),),
    ),
    Entry("pipeline/cli/clean.py", "Run in a git", NO_REMEDY),
    Entry("pipeline/cli/clean.py", "{} can be", (Situation("unseen clean", uncommitted),)),
    Entry("pipeline/cli/commands/graph.py", "--ship is", CHOICE),
    Entry("pipeline/cli/doctor.py", "unseen serve", NO_REMEDY),
    Entry("pipeline/cli/doctor.py", "Install it", INSTALLS),
    Entry("pipeline/cli/doctor.py", "For {}", INSTALLS),
    Entry("pipeline/cli/doctor.py", "compute it", (Situation(VERIFY, also_in_cache(WEIGHTS)),)),
    Entry(
        "pipeline/cli/doctor.py",
        "restore it from DVC",
        (
            Situation(VERIFY, flipped(WEIGHTS)),
            Situation(VERIFY, flipped(TEST)),
            Situation(VERIFY, removed(WEIGHTS)),
        ),
    ),
    Entry("pipeline/cli/doctor.py", "restore it from git", (Situation(VERIFY, flipped(METRICS)),)),
    Entry("pipeline/cli/init.py", "{} is a project", MINUTES),
    Entry("pipeline/cli/init.py", "`unseen run` runs", (Situation("unseen lock", again=False),)),
    Entry("pipeline/cli/init.py", "{} accepts", MINUTES),
    Entry("pipeline/cli/ladder.py", "Search with", MINUTES),
    Entry(
        "pipeline/cli/run.py",
        "Set train.workers",
        (Situation("unseen run -j 2", replaced("params.yaml", "workers: 1", "workers: auto"), again=False),),
    ),
    Entry(
        "pipeline/cli/verify.py",
        "Repair",
        (Situation(VERIFY, replaced("dvc.lock", "stages:", "stages"), by_hand="git checkout -- dvc.lock"),),
    ),
    Entry("pipeline/cluster/connection.py", "ray job", CLUSTER),
    Entry("pipeline/cluster/task.py", "Run", CLUSTER),
    Entry("pipeline/cluster/private.py", "read nothing", NO_REMEDY),
    Entry("pipeline/config/inputs.py", "Run `dvc repro`: stage", (Situation(EXPORT, removed(RESOLVED)),)),
    Entry(
        "pipeline/config/inputs.py",
        "Run `dvc repro -f -s resolve`.",
        (Situation(EXPORT, cut(RESOLVED)), Situation(EXPORT, replaced(RESOLVED, '"schema"', '"Schema"'))),
    ),
    Entry(
        "pipeline/config/place.py",
        "Members",
        (
            Situation(
                f"{STAGE}resolve",
                replaced("params.yaml", "\nensemble:", "\nensemble:\n  concurrent: 2"),
                words={"-j N": "-j 2"},
                by_hand="sed -i '/^  concurrent: 2$/d' params.yaml",
            ),
        ),
    ),
    Entry(
        "pipeline/config/inputs.py",
        "Run `dvc repro -f -s resolve`, then",
        (
            Situation(
                EXPORT,
                replaced(RESOLVED, '"settings"', '"weights": {"params.yaml": "of others"}, "settings"'),
            ),
        ),
    ),
    Entry(
        "pipeline/data/embeddings.py",
        "Run",
        (Situation(EVALUATE, cut(TEST)), Situation(EVALUATE, removed(TEST))),
    ),
    Entry(
        "pipeline/runtime/sealed.py",
        "Run `unseen doctor --verify`, then `rm",
        (
            Situation(EVALUATE, flipped(TEST)),
            Situation(EVALUATE, also_in_cache(TEST)),
            Situation(EXPORT, flipped(WEIGHTS)),
            Situation(EXPORT, cut(WEIGHTS)),
            Situation(EXPORT, also_in_cache(WEIGHTS)),
        ),
    ),
    Entry("pipeline/data/ingest/releases.py", "`unseen data", NETWORK),
    Entry("pipeline/data/ingest/remarks.py", "dvc repro", CHOICE),
    Entry(
        "pipeline/data/positions.py",
        "Run",
        (Situation(REPORT, cut(POSITIONS)), Situation(REPORT, removed(POSITIONS))),
    ),
    Entry(
        "pipeline/data/shards.py",
        "Build it again",
        (
            Situation(EXPORT, flipped(f"{SHARDS}/index.parquet")),
            Situation(EXPORT, cut(f"{SHARDS}/shard-00000.arrow")),
        ),
    ),
    Entry("pipeline/data/shards.py", "Build them", (Situation(EXPORT, removed(f"{SHARDS}/manifest.json")),)),
    Entry(
        "pipeline/data/splits.py",
        "Label more",
        (
            Situation(
                f"unseen ladder photos ../rungs {OWN} --statistics imagenet --size 32",
                before=PHOTOS,
                words={"PHOTOS CATALOG": f"photos {CATALOG} --model {MODEL}"},
                again=False,
            ),
        ),
    ),
    Entry("pipeline/evaluation/index/exact.py", "This GPU", INSTALLS),
    Entry("pipeline/evaluation/tables.py", "Run", OTHER_DATA),
    Entry("pipeline/evaluation/unknown.py", "Use a network", CHOICE),
    Entry("pipeline/evaluation/unknown.py", "Search with", CHOICE),
    Entry(
        "pipeline/experiments/catalogue.py", "{}`unseen study", (Situation("unseen study none", again=False),)
    ),
    Entry("pipeline/experiments/claims/results.py", "{} is no", NO_REMEDY),
    Entry(
        "pipeline/experiments/plan/checks.py",
        "{} input",
        (
            Situation(
                f"{STAGE}resolve",
                replaced(
                    "params.yaml", "name: test_resnet", f"name: test_resnet\n        checkpoint: {WEIGHTS}"
                ),
                PHOTOS,
                {"PHOTOS": "photos"},
                again=False,
            ),
        ),
    ),
    Entry(
        "pipeline/experiments/selection.py",
        "`unseen study",
        (Situation("unseen study crt-figure-1 --mini", again=False),),
    ),
    Entry(
        "pipeline/experiments/selection.py",
        "Restore",
        (Situation("unseen study crt-table-8 --mini", no_axes, again=False),),
    ),
    Entry("pipeline/experiments/sweep/outputs.py", "dvc exp", OTHER_RESULTS),
    Entry("pipeline/experiments/sweep/proposals.py", "Install", INSTALLS),
    Entry("pipeline/frozen/network.py", "Install", INSTALLS),
    Entry(
        "pipeline/frozen/network.py",
        "Correct",
        (Situation(f"unseen index photos {CATALOG} --network none", before=PHOTOS, again=False),),
    ),
    Entry(
        "pipeline/frozen/network.py",
        "Name the",
        (
            Situation(
                f"unseen index photos {CATALOG} {OWN}", before=PHOTOS, words={"PHOTOS": "photos"}, again=False
            ),
        ),
    ),
    Entry("pipeline/frozen/training_classes.py", "Write", MINUTES),
    Entry("pipeline/methods/artifact.py", "Train the model: ", (Situation(EXPORT, removed(WEIGHTS)),)),
    Entry(
        "pipeline/report/report_data.py",
        "Run",
        (
            Situation(REPORT, removed(f"{EVALUATION}/queries.parquet")),
            Situation(REPORT, removed("data/analysis/parts/ms/0.json")),
        ),
    ),
    Entry(
        "pipeline/runtime/files.py",
        "Make space",
        (Situation(FULL_DISK, words={"NEW_PATH": "../cache"}, again=False),),
    ),
    Entry("pipeline/runtime/parts.py", "If you trust", CHOICE),
    Entry(
        "pipeline/runtime/sealed.py",
        "Run `unseen doctor --verify`, then `dvc",
        (
            Situation(REPORT, flipped("data/history/parts/ms/0.csv")),
            Situation(REPORT, flipped(f"{EVALUATION}/queries.parquet")),
            Situation(REPORT, also_in_cache("data/analysis/parts/ms/0.json")),
        ),
    ),
    Entry(
        "pipeline/runtime/stage.py",
        "`unseen init",
        (Situation("cd / && unseen run", words={"DIRECTORY": "../other"}, again=False),),
    ),
    Entry(
        "pipeline/runtime/stage.py",
        "Run it from",
        (Situation("python ../other/stages/report.py", before="cp -r . ../other", again=False),),
    ),
    Entry(
        "pipeline/runtime/version_lock.py",
        "`unseen lock`",
        (
            Situation(
                f"cd {MADE} && {STAGE}resolve",
                replaced(f"{MADE}/unseen.lock", "unseen", "an earlier unseen"),
                f"rm -rf {MADE} && unseen init {MADE}",
                {"unseen lock": f"cd {MADE} && unseen lock"},
            ),
        ),
    ),
    Entry("pipeline/training/job.py", "dvc repro", CHOICE),
    Entry(
        "pipeline/training/staging.py",
        "Build it again",
        (Situation(f"{STAGE}train parts ms 0", damaged_and_staged),),
    ),
    Entry("unseen_search/catalog/export_model.py", "pip", INSTALLS),
    Entry(
        "unseen_search/catalog/files.py",
        "Build one",
        (Situation(FIND, before=PHOTOS, words={"PHOTOS": "photos"}),),
    ),
    Entry(
        "unseen_search/catalog/files.py",
        "Build the catalog",
        (
            Situation(
                FIND, cut(f"{CATALOG}/pictures.parquet"), f"{PHOTOS}{INDEX} folders", {"PHOTOS": "photos"}
            ),
        ),
    ),
    Entry(
        "unseen_search/catalog/model_card.py",
        "Name a file",
        (
            Situation(
                f"unseen export-model {MODEL} exported --metrics params.yaml",
                words={"evaluate --json": f"evaluate {TEST} --json"},
                again=False,
            ),
        ),
    ),
    Entry("unseen_search/catalog/model_card.py", "Not measured", CHOICE),
    Entry(
        "unseen_search/catalog/thresholds.py",
        "`unseen index",
        (
            Situation(
                f"{FIND} --at-most-false 10%",
                before=f"{PHOTOS}{INDEX} none",
                words={"FILE.csv": "labels.csv"},
                again=False,
            ),
        ),
    ),
    Entry(
        "unseen_search/indexing.py",
        "unseen index",
        (
            Situation(
                f"unseen measure photos {OWN} --size 32",
                before=PHOTOS,
                words={"PHOTOS CATALOG": f"photos {CATALOG}"},
                again=False,
            ),
        ),
    ),
    Entry("unseen_search/serve.py", "unseen serve", NO_REMEDY),
    Entry("unseen_search/serve.py", "Install", INSTALLS),
    Entry("dvc_parallel/graph.py", "`dvc stage", (Situation("unseen run -j 2 none", again=False),)),
    Entry("dvc_parallel/graph.py", "unseen run {}", OTHER_DATA),
    Entry("dvc_parallel/lock_file.py", "Another", NO_REMEDY),
    Entry("dvc_parallel/parallel.py", "Omit", NO_REMEDY),
)


def entry_of(message: Message) -> Entry:
    """The entry of a message. Raises ValueError unless there is one."""
    entries = [
        each for each in TABLE if message.module == each.module and message.text.startswith(each.begin)
    ]
    if len(entries) != 1:
        raise ValueError(f"remedy_table.py has {len(entries)} entries of {message.module}: {message.text!r}")
    return entries[0]


SITUATIONS = {
    f"{message.module}: {message.text.splitlines()[0][:60]} ({number})": (message, situation)
    for message in printed()
    for number, situation in enumerate(entry_of(message).outcome)
    if isinstance(situation, Situation)
}
