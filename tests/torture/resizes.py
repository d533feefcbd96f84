"""Nodes that join and leave an elastic training: `python -m tests.torture.resizes --trainings N`.

A training has as many workers as its cluster has nodes: raylets of one CPU each on this machine, 1 to 3. At
RESIZES random steps a node joins, or the oldest with a worker leaves without notice (SIGKILL). The training
continues when the number of its workers is that of the nodes. A training is a violation unless

    it ends without an error, after each resize with the number of workers that the cluster then has
    each loss is within 1e-6 of that of one worker without a cluster, relative, and so is each metric
    no process, partial file, file of a cluster or shared memory is left

Training n is drawn by a generator seeded by n. The campaign continues where it was stopped.
"""

import itertools
import random
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from subprocess import Popen

from tests.torture import numbered, results
from tests.torture.clusters import Run, tell
from tests.torture.gated_training import SEGMENT, Rows, alone, differences, history, last_step, open_until
from tests.torture.numbered import shared_memory, shared_memory_left, within

STATE = results.RESULTS / "resizes.json"
MODULES = ("unseen.cluster.train_workers", "unseen.cluster.training", "unseen.training.loop")
MOST = 3  # nodes
RESIZES = 10  # of a training
LIMIT = 900.0  # seconds until a training has another number of workers


def drawn(number: int) -> tuple[int, list[tuple[str, int]]]:
    """The first number of nodes of training `number`, and its resizes: `join` or `leave`, and the step."""
    draw = random.Random(number)
    first = nodes = draw.randint(1, MOST)
    resizes = []
    for index in range(RESIZES):
        name = "join" if nodes == 1 else "leave" if nodes == MOST else draw.choice(("join", "leave"))
        nodes += 1 if name == "join" else -1
        resizes.append((name, index * SEGMENT + draw.randint(2, SEGMENT)))
    return first, resizes


def resized(nodes: int, resizes: Sequence[tuple[str, int]], undisturbed: Rows) -> tuple[str, list[str]]:
    """A training that begins on `nodes` nodes. Returns its description, and what the resizes broke."""
    segments = len(resizes) + 1
    shared = shared_memory()
    folder = Path(tempfile.mkdtemp(prefix="uc-"))
    try:
        run = Run(folder, "--elastic", "--nodes", str(nodes), "--segments", str(segments))
        driver = run.start()
        problems, worlds = [], [nodes]
        for name, step in [*resizes, ("end", SEGMENT * segments)]:
            # The first step of a segment waits for the number of workers, the last one for the next resize.
            if not _reaches(run.root, driver, step=-1, world=nodes):
                problems.append(f"has {last_step(run.root)[1]} workers on {nodes} nodes")
                break
            open_until(run.root, step)
            if name == "end":
                break
            if not _reaches(run.root, driver, step, nodes):
                problems.append(f"is at step {last_step(run.root)[0]} instead of {step}")
                break
            nodes += 1 if name == "join" else -1
            worlds.append(nodes)
            tell(driver, name)
        if problems:
            driver.kill()
        if (status := run.ended(driver)) != 0:
            problems.append(f"the training ends with {status}: {run.printed()[-300:]}")
        else:
            problems += differences(history(run.root), undisturbed)
        problems += [f"{name} is left" for name in run.left()]
        joins = sum(later > earlier for earlier, later in itertools.pairwise(worlds))
        description = f"{joins} joins, {len(worlds) - 1 - joins} leaves: {' '.join(map(str, worlds))} workers"
        return description, problems + shared_memory_left(shared)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _reaches(root: Path, driver: Popen[bytes], step: int, world: int) -> bool:
    """Waits until `step` or a later one has begun with this number of workers."""

    def reached() -> bool:
        last, workers = last_step(root)
        return last >= step and workers == world

    within(LIMIT, lambda: reached() or driver.poll() is not None)
    return reached()


def campaign(trainings: int, state: Path) -> None:
    """Runs the trainings that the results lack."""
    undisturbed = alone(RESIZES + 1)
    numbered.campaign(
        range(trainings),
        state,
        lambda number: ("1 to 3", MODULES),
        lambda number: resized(*drawn(number), undisturbed),
        "training",
    )


if __name__ == "__main__":
    numbered.own_shared_memory()
    text = "Nodes that join and leave change no loss and leave nothing."
    campaign(*numbered.options(text, STATE, 10, "training"))
