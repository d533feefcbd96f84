"""SIGTERM to a worker of Ray Train, whose training runs in a thread."""

import subprocess
import sys
from pathlib import Path

from unseen.cluster.notice import noticing

SCRIPT = """
import os, signal, sys, threading, time
from pathlib import Path
from unseen.cluster.notice import noticing

def train():
    with noticing(Path(sys.argv[1]), lambda: False) as lost:
        assert not lost()
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)
        while not lost():
            time.sleep(0.01)
        print("told", flush=True)
        time.sleep(60)

threading.Thread(target=train, daemon=True).start()
while True:
    time.sleep(0.1)
"""


def test_sigterm_tells_all_workers_and_ends_the_worker_some_seconds_later(tmp_path: Path) -> None:
    file = tmp_path / "notice"
    command = [sys.executable, "-c", SCRIPT, str(file)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (process.returncode, process.stdout) == (143, "told\n"), process.stderr
    with noticing(file, lambda: False) as lost:
        assert lost(), "another worker"


def test_ray_announces_a_loss(tmp_path: Path) -> None:
    announced = iter((False, True))
    with noticing(tmp_path / "notice", lambda: next(announced)) as lost:
        assert not lost()
        assert lost()
