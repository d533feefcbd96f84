"""The log of a run: its times, its machine, its libraries.

They differ between equal runs, so nothing depends on it.
"""

import contextlib
import importlib.metadata
import os
import platform
import time
from collections.abc import Iterator
from typing import Any

import torch

_LIBRARIES = (
    "torch",
    "timm",
    "numpy",
    "ray",
    "pyarrow",
    "opencv-python-headless",
    "simplejpeg",
    "faiss-cpu",
    "faiss-gpu",
)


class Clock:
    """Seconds per phase: start_up, data_wait, step, validation, checkpoint; mining (tuples).

    `step` includes the wait of the host for the device: it reads the numbers of the step before.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - start


def log_of(
    seconds: dict[str, float], images: int, world: int, threads: int, device: torch.device, **more: Any
) -> dict[str, Any]:
    """The log as a JSON value.

    `images`: trained on in the phases data_wait and step, before and after a resume.
    """
    training = seconds.get("data_wait", 0.0) + seconds.get("step", 0.0)
    versions = {}
    for name in _LIBRARIES:
        # Only one of the two builds of FAISS is installed.
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {
        "images_per_second": round(images / training, 1) if training else 0.0,
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "host": {
            "name": platform.node(),
            "system": platform.platform(),
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "device": torch.cuda.get_device_name(device)
            if device.type == "cuda"
            else f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        },
        "workers": world,
        "threads": threads,
        "versions": versions,
        **more,
    }
