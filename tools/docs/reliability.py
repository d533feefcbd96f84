"""docs/reliability.md from the results of the campaigns: `python -m tools.docs.reliability`."""

import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.torture import attacks, determinism, limited, neighbours, shim
from tests.torture.broken_files import READERS
from tests.torture.corpora import CORPORA
from tests.torture.kills import REPAIRED
from tests.torture.numbered import WITHOUT_EFFECT
from tests.torture.remedies import printed
from tests.torture.remedy_table import entry_of
from tests.torture.results import RESULTS, Result, load
from tests.torture.sabotage_table import SABOTAGES
from tests.torture.sabotages import CAMPAIGNS, CASES, DAMAGED, KILLS, OPERATION, POINTS
from tests.torture.unnoticed import MAY_CHANGE
from tools.docs.markdown import wrapped

_HEAD = """# Reliability

Written by `python -m tools.docs.reliability` from tests/torture/results; do not edit.

`make torture` runs all campaigns below except the broken files, which `make torture CORPORA=DIR` adds. Each
continues where it was stopped. `make test` runs a sample of each. A result was reached at the commit in its
table and belongs to the code that its cases execute (the modules of the stage or reader, and their imports,
without comments); a campaign discards the results of other code when it starts.
"""

_OPERATIONS = f"""## Every file operation fails once

`python -m tests.torture.file_operations`

A library below Python counts the operations that change or map files of the project: open for
writing, write, fsync, rename, mkdir, unlink, truncate, link, mmap. A stage runs with its n-th
operation failing by {", ".join(shim.FAULTS)}, then again without a fault.
A power loss is SIGKILL after every file has lost what was written since its last fsync; names of files are
not lost.

A case is a violation unless each output has its old or its new bytes, an error is one message
without a traceback and leaves no content in a partial file, and the next run succeeds with the bytes of an
undisturbed run and the permissions of new files and leaves no
partial file. The next run is omitted if all files have the content from which an earlier next run was
as it should be. The counted operations are those of a run that replaces earlier outputs. A row with fewer
cases than all has every fault of some of the operations.

Two defects were repaired after this campaign: an error of a file during the writing of the ONNX model gave a
catalog without it (`test_a_full_disk_is_an_error_and_no_catalog_without_an_onnx_model`), and an error during
a trial of a sweep a result with a failed trial
(`test_a_full_disk_ends_the_sweep_and_is_no_result_of_a_trial`).

Sizes are miniature: 14 drawn classes of 4 images, 4 steps of training of one convolution, one process,
without Ray. The path of the project contains a space and a letter outside ASCII. Each case is a fork of
one process that has imported the stage.
"""

_EARLIER = ("EIO", "ENOSPC", "EACCES", "SIGKILL")  # faults of results that do not state theirs
_NOT_COUNTED = """Not counted: writes that the C library buffers (the index files of FAISS count as one
open), reads, and processes that a stage starts.
"""

_KILLS = """## Kills at random times

`python -m tests.torture.kills`

The same miniature project, as a git repository. Each kill runs one stage by
`dvc repro --single-item --force`, or all stages by `unseen run -j 2 --force`, and ends the driver, the
process of a stage, or all processes by SIGKILL, SIGTERM or SIGINT at a random time. A kill is a violation
unless all processes end within a minute, the same command then succeeds without repair, every output has the
bytes of an undisturbed run, and no partial file, lock, temporary file or shared memory is left when the next
stage has started. (DVC may restore the outputs of a killed stage from its run cache; then no stage runs.)

"Trivial stages": 10 of them, dependent and independent, copy files in 30 ms each, and `unseen run -j 2` runs
in a fork of a process that has imported DVC: in a new or complete project, after a change, or where the run
cache contains all outputs. A kill comes at a random time, or is SIGKILL at a random file operation of the
driver. It is a violation also unless dvc.lock, DVC's cache and every other file then have the bytes of an
undisturbed `dvc repro` (of .gitignore: the lines), and `dvc status` is clean.

"Lock file": DVC rewrites `.dvc/tmp/rwlock` and `dvc.lock` in place. A kill during these writes damages them,
and the entry of a killed process is valid until its exit status is read. `dvc repro` refuses each afterwards;
`unseen run` repairs the files and succeeds.
"""

_CLUSTERS = """## Kills of the parts of a cluster

`python -m tests.torture.clusters`

A training of 48 steps on two workers, on a private Ray cluster or on raylets of one CPU each on one machine.
Each kill ends one part by SIGKILL at a random time after a random step, or in the first seconds: a worker,
the raylet or the head of the private cluster, the process of the stage ("driver"), the process with the
private cluster of `unseen run -j 2` ("run cluster"), a raylet with a worker while a spare remains ("node") or
without one, until another joins ("last node"). After "other workers", a kill of the driver, the second run
has one or three workers. The last steps begin when the command has ended or has started its workers again.
Only such a kill is effective. If the command fails, it runs again. A kill is a violation unless the command
or its second run succeeds, weights and history have the bytes of an undisturbed run (with another number of
workers: losses and metrics within 1e-6 of those of one worker, relative), a message names a lost last node,
and no process, partial file, file of a cluster or shared memory is left. The network computes in float64.
"""

_PREEMPTIONS = """## Preemptions of workers

`python -m tests.torture.preemptions`

A training has two workers on a private Ray cluster, or on raylets of one CPU each, of which one is a spare.
Ten times, 4 to 8 steps after it started or resumed, a worker or a node is lost: a worker by SIGTERM, some
seconds before its end ("notice"), by SIGTERM and within a second by SIGKILL ("short notice"), or by SIGKILL
("kill"); both workers by SIGKILL during a checkpoint, which a notice to one of them causes ("checkpoint"); a
raylet that drains, by SIGKILL after 10 s ("drained node"), or without notice ("lost node"). After a notice a
step begins every 0.5 s. A training is a violation unless the same command goes on after each loss and
succeeds, weights and history have the bytes of an undisturbed run, and no process, partial file, file of a
cluster or shared memory is left. "Steps again": the median and the maximum of the steps that begin again
after a loss; the step that the loss interrupts is one of them. Workers are forks of a process of their node
that has imported their libraries and Ray. Batch norm is frozen. Three losses without a new checkpoint in
between end a training, so that each start takes four steps or more: one is due every two steps. The campaign
continues where it ended.

The campaign found one defect. Ray destroys the group of a worker whose partner was lost, and a step in
progress went on with its own slice: history and weights of 2 of 5 trainings on drained nodes differed. The
step now ends (`test_a_step_whose_group_is_destroyed_has_no_checkpoint_unless_it_is_whole`).
"""

_RESIZES = """## Nodes that join and leave

`python -m tests.torture.resizes`

A training has as many workers as its cluster has nodes, 1 to 3 raylets of one CPU each on one machine. At ten
random steps a node joins, or the oldest with a worker leaves without notice. A training is a violation unless
it continues after each resize with the new number of workers and ends without an error, each loss and metric
is within 1e-6 (relative) of that of one worker without a cluster, and no process, partial file, file of a
cluster or shared memory is left. The network computes in float64: an optimizer enlarges the rounding of
float32.
"""

_LIMITS = f"""A case is read or refused with a message. A violation is another exception, more than
{limited.SECONDS:g} s of CPU time, {limited.WALL:g} s without an end, the end of the process, a process or a
connection that is started, or a file outside the scratch folder. Each case runs under a limit of
{limited.MEMORY / 2**30:g} GiB of address space in addition to that of the libraries ("at the limit": refused
because it did not suffice).
"""

_BROKEN = f"""## Broken files of public collections

`python -m tests.torture.corpora DIR && python -m tests.torture.broken_files DIR`

Every file is given to every reader of untrusted input, whatever its name:
{"; ".join(READERS)}.

{_LIMITS}"""

_MUTATIONS = """## Damaged files

`python -m tests.torture.mutations`

Case n of a kind is a small valid file with changes drawn by a generator seeded by the kind and n: flipped
bits, extreme values, removed, repeated and inserted bytes, a cut, a part of another file. Settings are also
changed as a tree. The limits are those of the broken files. Images are read in turn by decoding, search,
ingest with and without shrinking, and the catalog. Uploads are requests to `unseen serve` in this process,
with a valid or damaged photo: other lengths and truncated bodies, damaged chunks and headers, multipart
forms, other methods and paths. An answer of 4xx and a closed connection are refusals; 5xx and an exception
that the server logs are violations. A file that is read with other values than a whole one is a violation,
too, except of the kinds in the second table. Of models it compares the weights.
"""

_DIGESTS = """## Flipped bits

What is compared with a digest, and when. Each test flips one bit.
"""

_DIGEST_ROWS = (
    (
        "image in a shard",
        "at its first read by a process",
        "4% of the time of decoding a photograph, once",
        "test_one_flipped_bit_of_an_image_is_found_at_its_first_read",
    ),
    (
        "labels, splits, sources and ground truth of a data set",
        "at each opening",
        "a read of `index.parquet`",
        "test_one_flipped_bit_of_a_label_is_found_at_opening",
    ),
    (
        "embeddings with their labels",
        "at each opening",
        "0.1 s for 60,000 rows of 512 dimensions",
        "test_refuses_one_flipped_bit_in_any_column",
    ),
    (
        "catalog and its model",
        "at each opening; by `find` only files up to 64 MiB and the model, of larger ones the size",
        "a read of its files",
        "test_one_wrong_bit_is_an_error",
    ),
    (
        "weights of a trained model",
        "at each loading",
        "a read of the file",
        "test_names_one_flipped_bit_of_the_weights",
    ),
    (
        "metrics, histories, analyses, evaluations and sweeps",
        "by the report, `unseen run` and the model card",
        "a read of the files",
        "test_a_changed_digit_is_refused_with_the_stage_that_computes_it",
    ),
    (
        "every output of the graph",
        "by `unseen doctor --verify`",
        "a read of all files",
        "test_names_a_flipped_bit_that_changes_neither_size_nor_time",
    ),
)

_MEMORY = """## Memory

`python -m tests.torture.memory`

Each stage runs as a process under a hard limit on its private memory (RLIMIT_DATA): 0.59 GiB; if it does not
finish, 1 GiB; then the stated limit, in which it does. A traceback and an end without a message are
violations. Stage `sweep` and `unseen evaluate` run only under the stated limit: Ray does not start with less,
and the vectors alone need more. Stages that compute with torch, FAISS or OpenBLAS refuse a limit below 1 GiB
before the work, because an allocation that fails within these libraries can end the process without a
message. The data are a zip archive of a user with as many images per class as SOP, of 12 x 12 random pixels,
half of the classes for training; 512 dimensions, a small network. "Peak" is the largest resident memory, with
mapped files. `unseen evaluate` compares drawn vectors with each other. The default size is that of SOP,
120,053 images; the table has the rows that were run.
"""

_NEIGHBOURS = f"""## Hostile neighbours and unlucky machines

`python -m tests.torture.neighbours`

Stage `ingest` of the miniature project runs beside files of another user: named pipes, sockets and links
where it looks for what killed processes left, files that it may not read or replace. It runs with umask 077,
in a temporary directory without programs, with a clock that goes back, on a full disk, and while it is
stopped and continued; and three runs of the whole graph begin at once. The stage runs as root without
capabilities, which the permissions of files bind as any other user. A case is a violation unless the stage
ends within {neighbours.SECONDS:g} s, succeeds with the bytes of an undisturbed run or ends with one message
and the earlier outputs, and no file of the neighbour is changed or missing. When a full disk has space again,
the stage succeeds.
"""

_REMEDIES = """## Remedies

`python -m tests.torture.remedies`

The messages with a command are collected from the syntax tree; a new one without an entry in the table of the
campaign fails `make test`. A situation damages a copy of the finished miniature project ("flipped": one bit,
without a change of size and time), runs a command that prints the message, and executes the printed commands
literally, but for placeholders such as PHOTOS, after what the message tells in words ("Remove this line"):
those of a sequence one after the other, alternatives each in a copy of its own. It is a violation unless the
message is printed, the commands succeed, the first command then succeeds, and every output and every object
of DVC's cache has the bytes of an undisturbed run. A result belongs to the code of the module of the message.
"""

_ATTACKS = f"""## Attacks on the service

`python -m tests.torture.attacks`

`unseen serve` answers from a small catalog during each attack of {attacks.DURATION:g} s. A process asks for
/health and a control in turn: a server of asyncio that answers with a constant. Service, control and
attackers compete for the cores of one machine; the ratio of the 99th percentiles belongs to the service.
"Memory": the largest growth of the resident memory of the service. After each attack a photo gets its answer.
"""

_SABOTAGES = f"""## Sabotages

`python -m tests.torture.sabotages`

Each sabotage changes one function of the product in a process of its own. Then samples of the campaigns run:
{POINTS} drawn file operations of one operation fail by each fault, or all of them where few lead to the
changed code; the runs that must be equal are compared ("determinism"); if these do not find the sabotage,
{CASES} damaged files of each kind whose code contains the function's module are read. Of neighbours and
remedies the cases that execute the function run in a project with the changed file. {KILLS} kills at random
times, and two kills of parts of a cluster (a worker, and a raylet), run in a clone with the changed file. A
sample ends at its first violation, which finds the sabotage. In brackets: the operation or kind, and the
cases until then. The same samples without a sabotage have no violation. "None": the sample has no violation;
"-": not run, or the campaign does not execute the function.

Kills are for what a killed stage leaves or restores (most of the time of this short stage is its start, in
which a kill loses nothing), clusters for two faults of the state from which workers start again. Resizes
restore by the functions that clusters execute, in ten minutes a training. A limit of memory and an attack on
the service change neither files nor values of the training.
"""


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    return [
        f"| {' | '.join(header)} |",
        f"|{'---|' * len(header)}",
        *(f"| {' | '.join(map(str, row))} |" for row in rows),
        "",
    ]


def _violations(result: Result) -> list[str]:
    return list(result.get("violations", {}).values())


def _file_operations(results: dict[str, Result]) -> Iterator[str]:
    yield _OPERATIONS
    rows = [
        (
            name,
            f"{result['operations']:,}",
            f"{result['cases']:,} of {len(result.get('faults', _EARLIER)) * result['operations']:,}",
            "yes" if "power loss" in result.get("faults", _EARLIER) else "no",
            len(result["violations"]),
            f"{result['cpu_seconds']:,.0f}",
            result["commit"],
        )
        for name, result in results.items()
    ]
    header = ("operation", "file operations", "cases run", "power loss", "violations", "CPU s", "commit")
    yield from table(header, rows)
    kinds = Counter(
        f"{name}: {problem.split(': ')[0]}"
        for name, result in results.items()
        for problems in result["violations"].values()
        for problem in problems
    )
    yield from [f"- {kind}: {count} cases" for kind, count in sorted(kinds.items())] + [""] * bool(kinds)
    yield _NOT_COUNTED


def _kills(results: dict[str, Result]) -> Iterator[str]:
    yield _KILLS
    rows = []
    for command, result in sorted(results.items()):
        kills = result["kills"].values()
        targets = Counter(" ".join(_without_end(kill).split(", ")[1:]) for kill in kills)
        rows.append(
            (
                command,
                len(kills),
                ", ".join(f"{count} {target}" for target, count in sorted(targets.items())),
                sum("ended before" in kill["kill"] for kill in kills),
                sum(REPAIRED in kill["kill"] for kill in kills),
                sum(bool(kill["violations"]) for kill in kills),
                f"{result.get('cpu_seconds', 0):,.0f}",
                result["commit"],
            )
        )
    header = (
        "command or stage",
        "kills",
        "target and signal",
        "after its end",
        "lock file",
        "violations",
        "CPU s",
        "commit",
    )
    yield from table(header, rows)
    yield f"{sum(len(result['kills']) for result in results.values())} kills."
    yield ""
    for result in results.values():
        for number, kill in result["kills"].items():
            for problem in kill["violations"]:
                yield f"- kill {number}, {kill['kill']}: {problem}"


def _clusters(results: dict[str, Result]) -> Iterator[str]:
    if not results:
        return
    yield _CLUSTERS
    rows = []
    for target, result in sorted(results.items()):
        kills = result["kills"].values()
        effective = sum(WITHOUT_EFFECT not in kill["kill"] for kill in kills)
        again = sum("second run" in kill["kill"] for kill in kills)
        violations = sum(bool(kill["violations"]) for kill in kills)
        seconds = f"{result.get('cpu_seconds', 0):,.0f}"
        rows.append((target, len(kills), effective, again, violations, seconds, result["commit"]))
    yield from table(("target", "kills", "effective", "run again", "violations", "CPU s", "commit"), rows)
    for target, result in results.items():
        for number, kill in result["kills"].items():
            for problem in kill["violations"]:
                yield f"- kill {number}, {target} {kill['kill']}: {problem}"


def _preemptions(results: dict[str, Result]) -> Iterator[str]:
    if not results:
        return
    yield _PREEMPTIONS
    rows = []
    for kind, result in results.items():
        trainings = result["trainings"].values()
        again = [int(steps) for training in trainings for steps in training["training"].split(", ") if steps]
        violations = sum(bool(training["violations"]) for training in trainings)
        steps = f"{statistics.median(again):g}, {max(again)}" if again else ""
        seconds = f"{result.get('cpu_seconds', 0):,.0f}"
        rows.append((kind, len(trainings), len(again), steps, violations, seconds, result["commit"]))
    head = ("kind", "trainings", "losses", "steps again", "violations", "CPU s", "commit")
    yield from table(head, rows)
    for kind, result in results.items():
        for number, training in result["trainings"].items():
            for problem in training["violations"]:
                yield f"- training {number}, {kind}: {problem}"


def _resizes(results: dict[str, Result]) -> Iterator[str]:
    if not results:
        return
    yield _RESIZES
    rows = []
    for name, result in results.items():
        trainings = result["trainings"].values()
        counts = [re.findall(r"(\d+) (?:joins|leaves)", each["training"]) for each in trainings]
        joins, leaves = (sum(map(int, column)) for column in zip(*counts, strict=True))
        violations = sum(bool(each["violations"]) for each in trainings)
        seconds = f"{result.get('cpu_seconds', 0):,.0f}"
        rows.append((name, len(trainings), joins, leaves, violations, seconds, result["commit"]))
    yield from table(("workers", "trainings", "joins", "leaves", "violations", "CPU s", "commit"), rows)
    for result in results.values():
        for number, training in result["trainings"].items():
            for problem in training["violations"]:
                yield f"- training {number}, {training['training']}: {problem}"


def _without_end(kill: dict[str, Any]) -> str:
    """The description of a kill, without the notes of when it came and what it damaged."""
    description: str = kill["kill"]
    return description.removesuffix(REPAIRED).removesuffix(", ended before")


def _cases(result: Result) -> int:
    return sum(result.get(key, 0) for key in ("read", "refused", "limited")) + len(_violations(result))


_COUNTS = ("read", "refused", "at the limit", "violations", "CPU s", "commit")


def _counts(result: Result) -> tuple[object, ...]:
    numbers = (result.get(key, 0) for key in ("read", "refused", "limited"))
    return (
        *(f"{number:,}" for number in numbers),
        len(_violations(result)),
        f"{result.get('cpu_seconds', 0):,.0f}",
        result["commit"],
    )


def _problems(results: dict[str, Result]) -> Iterator[str]:
    for name, result in results.items():
        for problem, count in Counter(_violations(result)).items():
            yield f"- {name}: {problem} ({count})"


def _broken_files(results: dict[str, Result]) -> Iterator[str]:
    yield _BROKEN
    rows: list[tuple[object, ...]] = []
    for name in CORPORA:
        result = results.get(name, {})
        if result.get("files"):
            finished, count = _cases(result) // len(READERS), result["files"]
            files = f"{count:,}" if finished >= count else f"{finished:,} of {count:,}"
            rows.append((name, files, *_counts(result)))
        else:
            rows.append((name, "not run", *[""] * len(_COUNTS)))
    yield from table(("corpus", "files", *_COUNTS), rows)
    yield from _problems(results)


def _mutations(results: dict[str, Result]) -> Iterator[str]:
    yield _MUTATIONS
    rows = []
    for name, result in results.items():
        cases = _cases(result)
        rows.append((name, f"{cases:,}", *_counts(result)))
    yield from table(("kind", "cases", *_COUNTS), rows)
    yield from _problems(results)
    yield from table(("may change without notice", "reason"), MAY_CHANGE.items())


def _neighbours(results: dict[str, Result]) -> Iterator[str]:
    if not results:
        return
    yield _NEIGHBOURS
    rows = [
        (name, result["outcome"], len(result["violations"]), f"{result['cpu_seconds']:.1f}", result["commit"])
        for name, result in results.items()
    ]
    yield from table(("neighbour", "outcome", "violations", "CPU s", "commit"), rows)
    works = sum(result["outcome"] == "works" for result in results.values())
    violations = sum(bool(result["violations"]) for result in results.values())
    refused = len(rows) - works
    yield f"{len(rows)} cases: {works} work, {refused} end with one message, {violations} violations."
    yield ""


def _remedies(results: dict[str, Result]) -> Iterator[str]:
    if not results:
        return
    yield _REMEDIES
    rows = [
        (
            name,
            result["executed"],
            len(result["violations"]),
            f"{result['cpu_seconds']:.0f}",
            result["commit"],
        )
        for name, result in results.items()
        if "executed" in result
    ]
    header = ("module: message (situation)", "remedies", "violations", "CPU s", "commit")
    yield from table(header, ((f"`{name}`", *others) for name, *others in rows))
    executed, violations = sum(row[1] for row in rows), sum(bool(row[2]) for row in rows)
    yield f"{len(rows)} situations, {executed} remedies executed, {violations} violations."
    yield ""
    messages = [entry_of(message).outcome for message in printed()]
    reasons = Counter(outcome for outcome in messages if isinstance(outcome, str))
    yield f"Of {len(messages)} messages, {sum(reasons.values())} are not executed:"
    yield ""
    yield from table(("reason", "messages"), reasons.most_common())


def _attacks(results: dict[str, Result]) -> Iterator[str]:
    if not results:
        return
    yield _ATTACKS
    rows = [
        (
            name,
            result["answers"],
            *(f"{result[key] * 1000:.0f}" for key in ("p50", "p99", "control_p99")),
            f"{result['p99'] / result['control_p99']:.1f}",
            f"{result['memory'] / 2**20:,.0f}",
            result["commit"],
        )
        for name, result in results.items()
    ]
    header = ("attack", "answers", "p50, ms", "p99, ms", "p99 of the control, ms", "ratio")
    yield from table((*header, "memory, MiB", "commit"), rows)
    fast = sum(result["p99"] < 0.1 for result in results.values())
    yield f"The p99 of {fast} of {len(rows)} is below 100 ms."
    yield ""


def _sabotages(results: dict[str, Result]) -> Iterator[str]:
    if not results:
        return
    yield _SABOTAGES
    rows = []
    for sabotage in SABOTAGES:
        result = results.get(sabotage.name, {})
        operation = OPERATION + str(sabotage.operation)
        cells = (
            _found(result.get(operation), sabotage.operation),
            *(_found(result.get(name), None if name == DAMAGED else "") for name in CAMPAIGNS[1:]),
        )
        rows.append((sabotage.name, f"`{sabotage.function}`", *cells))
    yield from table(("sabotage", "function", *CAMPAIGNS), rows)
    campaigns = [results.get(sabotage.name, {}).values() for sabotage in SABOTAGES]
    noticed = sum(any(each["violation"] for each in row) for row in campaigns)
    seconds = sum(each["cpu_seconds"] for row in results.values() for each in row.values())
    commits = sorted({each["commit"] for row in results.values() for each in row.values()})
    yield f"{noticed} of {len(rows)} are found; {seconds:,.0f} CPU s; commit {', '.join(commits) or 'none'}."
    yield ""
    unfound = [
        each for each in SABOTAGES if not any(row["violation"] for row in results.get(each.name, {}).values())
    ]
    yield from table(
        ("not found", "reason, and the test that finds it"),
        [(each.name, each.unfound or "not run") for each in unfound],
    )


def _found(result: Result | None, operation: str | None = None) -> str:
    """Whether a sample found a sabotage, and by what."""
    if result is None:
        return "-"
    if result["violation"] is None:
        return f"none in {result['cases']:,} cases"
    where = result["violation"].split(", case ")[0] if operation is None else operation
    return f"found ({where}, {result['cases']:,})" if where else f"found ({result['cases']:,})"


def _digests(results: dict[str, Result]) -> Iterator[str]:
    yield _DIGESTS
    rows = [(*row[:-1], f"`{row[-1]}`") for row in _DIGEST_ROWS]
    yield from table(("data", "compared", "cost", "test"), rows)
    yield "`dvc status` reads a file again only if its time or size changed."
    yield ""


def _memory(results: dict[str, Result]) -> Iterator[str]:
    yield _MEMORY
    rows = [
        (
            command,
            result["rows"],
            f"{result['limit_gib']:.2g}",
            f"{result['peak_gib']:.2f}",
            f"{result['cpu_seconds']:,.0f}",
            "; ".join(f"{limit}: {answer}" for limit, answer in result["answers"].items()) or "none",
            len(result["violations"]),
            result["commit"],
        )
        for command, result in results.items()
    ]
    header = ("command", "rows", "limit, GiB", "peak, GiB", "CPU s", "below it", "violations", "commit")
    yield from table(header, rows)
    yield from _problems(results)


def page(folder: Path = RESULTS) -> str:
    """docs/reliability.md."""
    sections = {
        "file_operations": _file_operations,
        "kills": _kills,
        "clusters": _clusters,
        "preemptions": _preemptions,
        "resizes": _resizes,
        "broken_files": _broken_files,
        "mutations": _mutations,
        "sabotages": _sabotages,
        "neighbours": _neighbours,
        "attacks": _attacks,
        "remedies": _remedies,
        "digests": _digests,
        "memory": _memory,
        "determinism": determinism.section,
    }
    results = {name: load(folder / f"{name}.json") for name in sections}
    seconds = sum(row.get("cpu_seconds", 0.0) for rows in results.values() for row in rows.values())
    lines = [_HEAD, f"The results on this page took {seconds / 3600:.1f} CPU hours.\n"]
    for name, section in sections.items():
        lines += section(results[name])
        lines += [""] * (lines[-1] != "" and not lines[-1].endswith("\n"))
    text = "\n".join(line.rstrip("\n") if line.endswith("\n\n") else line for line in lines)
    return wrapped(text.rstrip()) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
