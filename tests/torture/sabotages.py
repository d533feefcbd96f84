"""The campaigns find faults of the code: `python -m tests.torture.sabotages`.

Each sabotage of sabotage_table.py changes one function of the product in the process of the campaign while
samples of the campaigns run in forks:

    file operations    the operation of the sabotage; each of POINTS file operations, drawn by its name, fails
                       by each fault
    determinism        the runs of determinism.py up to `train` that must be equal
    damaged files      CASES cases of each kind of mutations.py whose code contains the module, unless file
                       operations or determinism find the sabotage
    neighbours         the cases that the table names, in a copy of the project with the changed file; needs
                       root
    remedies           likewise
    kills              KILLS kills of the stage that the table names, in a clone with the changed file
    clusters           the first kills of clusters.py, likewise

The table states which of the last five run. A sample ends at its first violation: the campaign finds the
sabotage. A sample without a sabotage, NONE, has none. The campaign continues where it was stopped; another
text of a sabotage, and other code of its module or operation, discard a result.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

from tests.torture import (
    clusters,
    determinism,
    kills,
    mutations,
    neighbours,
    network,
    remedies,
    results,
    shim,
)
from tests.torture.file_operations import Case, cpu_seconds, run
from tests.torture.limited import Counts
from tests.torture.operations import PREPARATION, Operation, required, write_project
from tests.torture.remedy_table import SITUATIONS
from tests.torture.sabotage_table import SABOTAGES, Sabotage
from unseen.runtime.stage import end_with_parent

STATE = results.RESULTS / "sabotages.json"
NONE = "none"
OPERATION, DAMAGED = "file operations: ", "damaged files"  # campaigns in the results
DETERMINISM, NEIGHBOURS, REMEDIES = "determinism", "neighbours", "remedies"
KILLED, CLUSTERS = "kills", "clusters"
CAMPAIGNS = ("file operations", DETERMINISM, DAMAGED, NEIGHBOURS, REMEDIES, KILLED, CLUSTERS)
POINTS, CASES, KILLS = 6, 150, 4
SECONDS = 900  # until a sample without an end is a violation; a build of a catalog exports ONNX in each case
Sample = Callable[[], tuple[int, str | None]]  # the number of its cases, and the first violation


def sample_of_operation(operation: Operation, project: Path, points: int) -> tuple[int, str | None]:
    """The cases of some file operations of an operation, in this process."""
    try:
        case = Case(operation, project)
    except RuntimeError as error:
        return 0, str(error).strip().splitlines()[-1]
    numbers = list(range(1, case.operations + 1))
    random.Random(operation.name).shuffle(numbers)
    count = 0
    for fault in reversed(shim.FAULTS):  # those that end the process find most sabotages
        for number in numbers[:points]:
            count += 1
            if problems := case.violations(number, fault):
                return count, f"operation {number}, {fault}: {problems[0]}"
    return count, None


def sample_of_kinds(kinds: dict[str, mutations.Kind]) -> tuple[int, str | None]:
    """Cases of damaged files of each kind, in this process."""
    counts = Counts()
    for name, kind in kinds.items():
        mutations.run(name, kind, 0, CASES, counts)
        if counts.violations:
            number, problem = next(iter(counts.violations.items()))
            return counts.cases, f"{name}, case {number}: {problem.splitlines()[0]}"
    return counts.cases, None


def sample_in_copy(
    campaign: Callable[..., None], cases: Sequence[str], sabotage: Sabotage
) -> tuple[int, str | None]:
    """Cases of a campaign in a copy of the project with the changed file."""
    with tempfile.TemporaryDirectory(prefix="unseen-sabotages-") as folder:
        state = Path(folder) / "state.json"
        try:
            campaign(cases, state, sabotage.edit)
        except RuntimeError as error:
            return 0, str(error).strip().splitlines()[-1]
        recorded = results.load(state)
    return _first([(name, recorded[name]["violations"]) for name in cases])


def sample_in_clone(module: str, options: Sequence[str], sabotage: Sabotage | None) -> tuple[int, str | None]:
    """The kills of a campaign in a process of its own, in a clone of this commit with the changed file."""
    if results.commit().endswith("-dirty"):
        raise RuntimeError("kills and clusters run in a clone: commit the changes first")
    variables = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    with tempfile.TemporaryDirectory(prefix="unseen-sabotages-") as folder:
        clone, state = Path(folder) / "clone", Path(folder) / "state.json"
        subprocess.run(["git", "clone", "--quiet", str(results.ROOT), str(clone)], check=True)
        if sabotage is not None:
            sabotage.edit(clone)
        command = [sys.executable, "-m", module, *options, "--state", str(state)]
        ended = subprocess.run(
            command, cwd=clone, env=variables | {"PYTHONPATH": str(clone)}, capture_output=True, text=True
        )
        if ended.returncode:
            return 0, (ended.stdout + ended.stderr).strip().splitlines()[-1]
        kill_of = {
            int(number): kill for row in results.load(state).values() for number, kill in row["kills"].items()
        }
    return _first([(kill["kill"], kill["violations"]) for _, kill in sorted(kill_of.items())])


def _first(cases: Sequence[tuple[str, list[str]]]) -> tuple[int, str | None]:
    """The number of cases up to the first one with violations, and its first violation."""
    for number, (name, violations) in enumerate(cases, 1):
        if violations:
            return number, f"{name}: {violations[0].splitlines()[0]}"
    return len(cases), None


def sample_of_determinism() -> tuple[int, str | None]:
    """The runs that must be equal, in this process: another run, one with other loader threads, and ingest of
    files in another order."""
    with tempfile.TemporaryDirectory(prefix="unseen-sabotages-") as folder:
        try:
            _, different = determinism.equal_runs(Path(folder), "train", again=1)
        except RuntimeError as error:
            return 0, str(error)
    return _first([(variant, names) for variant, names in different.items()])


def in_fork(sample: Sample) -> tuple[int, str | None]:
    """Runs a sample in a fork, and ends all its processes."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        end_with_parent()
        os.setsid()
        signal.alarm(SECONDS)
        status = 70
        try:
            with os.fdopen(writer, "w") as pipe:
                json.dump({"found": sample()}, pipe)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        written = pipe.read()
    if status and os.waitstatus_to_exitcode(status) != -signal.SIGALRM:
        raise RuntimeError("a sample failed")
    count, violation = json.loads(written)["found"] if written else (0, "no end")
    return count, violation


class Recorded:
    """The results in a file, by sabotage and campaign."""

    def __init__(self, state: Path) -> None:
        self._state, self._results = state, results.load(state)

    def is_found(self, sabotage: Sabotage | None) -> bool:
        return sabotage is not None and any(
            row["violation"] for row in self._results.get(sabotage.name, {}).values()
        )

    def run(self, sabotage: Sabotage | None, campaign: str, modules: Sequence[str], sample: Sample) -> None:
        """Runs a sample unless it is recorded for this code and this text of the sabotage."""
        name = sabotage.name if sabotage else NONE
        edit = [sabotage.function, sabotage.old, sabotage.new] if sabotage else []
        digest = results.version([sabotage.module, *modules] if sabotage else modules)
        identity = {"digest": digest, "edit": edit}
        row = self._results.setdefault(name, {})
        if all(row.get(campaign, {}).get(key) == value for key, value in identity.items()):
            return
        start = cpu_seconds()
        count, violation = sample()
        seconds = cpu_seconds() - start
        if sabotage is None and violation is not None:
            raise RuntimeError(f"a violation without a sabotage: {violation}")
        found = {"cases": count, "violation": violation, "cpu_seconds": seconds}
        row[campaign] = identity | {"commit": results.commit()} | found
        results.save(self._state, self._results)
        sys.stdout.write(f"{name}, {campaign}: {violation or 'no violation'}\n")
        sys.stdout.flush()


def campaign(
    sabotages: Sequence[Sabotage], state: Path, points: int = POINTS, campaigns: Sequence[str] = CAMPAIGNS
) -> None:
    recorded = Recorded(state)
    # First: a fork of a process that has computed with torch lacks its threads.
    if CAMPAIGNS[0] in campaigns:
        _fail_file_operations(sabotages, recorded, points)
    run = {
        DETERMINISM: _compare_runs,
        DAMAGED: _damage_files,
        NEIGHBOURS: _meet_neighbours,
        REMEDIES: _execute_remedies,
        KILLED: _kill_stages,
        CLUSTERS: _kill_parts_of_clusters,
    }
    for name, campaign in run.items():
        if name in campaigns:
            campaign(sabotages, recorded)


def _damage_files(sabotages: Sequence[Sabotage], recorded: "Recorded") -> None:
    with tempfile.TemporaryDirectory(prefix="unseen-seeds-") as folder:
        kinds = mutations.kinds(Path(folder))
        for sabotage in (None, *sabotages):
            reached = {
                name: kind
                for name, kind in kinds.items()
                if sabotage is None or sabotage.module in results.closure(kind.modules)
            }
            if reached and not recorded.is_found(sabotage):
                modules = sorted({module for kind in reached.values() for module in kind.modules})
                recorded.run(
                    sabotage, DAMAGED, modules, _changed(sabotage, partial(sample_of_kinds, reached))
                )


def _meet_neighbours(sabotages: Sequence[Sabotage], recorded: Recorded) -> None:
    for sabotage in sabotages:
        if sabotage.neighbours and os.geteuid() == 0:
            sample = partial(sample_in_copy, neighbours.campaign, sabotage.neighbours, sabotage)
            recorded.run(sabotage, NEIGHBOURS, neighbours.MODULES, sample)


def _execute_remedies(sabotages: Sequence[Sabotage], recorded: Recorded) -> None:
    for sabotage in sabotages:
        if sabotage.remedies:
            cases = [name for name in SITUATIONS if name.startswith(sabotage.remedies)]
            modules = sorted({remedies.module_of(SITUATIONS[name][0]) for name in cases})
            sample = partial(sample_in_copy, remedies.campaign, cases, sabotage)
            recorded.run(sabotage, REMEDIES, modules, sample)


def _compare_runs(sabotages: Sequence[Sabotage], recorded: Recorded) -> None:
    chosen = [sabotage for sabotage in sabotages if sabotage.determinism]
    for sabotage in (None, *chosen) if chosen else ():
        sample = _changed(sabotage, partial(in_fork, sample_of_determinism))
        recorded.run(sabotage, DETERMINISM, determinism.MODULES, sample)


def _kill_stages(sabotages: Sequence[Sabotage], recorded: Recorded) -> None:
    for sabotage in sabotages:
        if sabotage.kills:
            options = ["--stage", sabotage.kills, "--kills", str(KILLS)]
            sample = partial(sample_in_clone, kills.__name__, options, sabotage)
            recorded.run(sabotage, KILLED, kills.MODULES[sabotage.kills], sample)


def _kill_parts_of_clusters(sabotages: Sequence[Sabotage], recorded: Recorded) -> None:
    chosen = [sabotage for sabotage in sabotages if sabotage.clusters]
    for sabotage in chosen:
        options = ["--kills", str(sabotage.clusters)]
        sample = partial(sample_in_clone, clusters.__name__, options, sabotage)
        recorded.run(sabotage, CLUSTERS, clusters.MODULES, sample)


def _changed(sabotage: Sabotage | None, sample: Sample) -> Sample:
    """The sample in this process with the changed function."""

    def run() -> tuple[int, str | None]:
        with sabotage.applied() if sabotage else contextlib.nullcontext():
            return sample()

    return run


def _fail_file_operations(sabotages: Sequence[Sabotage], recorded: Recorded, points: int) -> None:
    wanted = {sabotage.operation for sabotage in sabotages if sabotage.operation}
    if not wanted:
        return
    operations = required(sorted(wanted))
    for module in {module for operation in operations for module in operation.modules}:
        import_module(module)
    with tempfile.TemporaryDirectory(prefix="unseen-sabotages-") as folder:
        project = Path(folder) / "my pröject"
        project.mkdir()
        write_project(project, network.NAME)
        for operation in operations:
            if operation.name in PREPARATION:
                PREPARATION[operation.name](project)
            if operation.name in wanted:
                Case(operation, project).reset()  # imports what the cases import
                of_operation = [each for each in sabotages if each.operation == operation.name]
                for sabotage in (None, *of_operation):
                    _sample(sabotage, operation, project, recorded, points)
                for path in map(project.joinpath, operation.outputs):
                    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            run(operation, project)


def _sample(
    sabotage: Sabotage | None, operation: Operation, project: Path, recorded: Recorded, points: int
) -> None:
    """The sample of an operation in a copy of the project."""

    def sample() -> tuple[int, str | None]:
        copy = Path(shutil.copytree(project, project.parent / "sabotaged" / project.name))
        count = sys.maxsize if sabotage and sabotage.every_point else points
        return sample_of_operation(operation, copy, count)

    changed = _changed(sabotage, partial(in_fork, sample))
    recorded.run(sabotage, OPERATION + operation.name, operation.modules, changed)
    shutil.rmtree(project.parent / "sabotaged", ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="The campaigns find sabotages of the code.")
    parser.add_argument("sabotages", nargs="*", help="names; all by default")
    parser.add_argument(
        "--points", type=int, default=POINTS, help="file operations that fail, of each sample"
    )
    parser.add_argument("--campaigns", nargs="+", choices=CAMPAIGNS, default=CAMPAIGNS, help="all by default")
    parser.add_argument("--state", type=Path, default=STATE, help="file of the results")
    arguments = parser.parse_args()
    chosen = [each for each in SABOTAGES if not arguments.sabotages or each.name in arguments.sabotages]
    if len(chosen) < len(arguments.sabotages):
        parser.error(f"the sabotages are: {', '.join(each.name for each in SABOTAGES)}")
    if shim.compiler() is None:
        raise SystemExit("The campaign needs Linux and a C compiler (cc).")
    shim.restart_with_library()
    campaign(chosen, arguments.state, arguments.points, arguments.campaigns)


if __name__ == "__main__":
    main()
