"""Loads published weights into a network, without executing code from the file, and checks every key."""

import sys
import tarfile
from pathlib import Path
from typing import Any

from torch import Tensor

from unseen.networks.torchvision_guard import ensure_torchvision
from unseen.networks.weights import require_published_bytes

ensure_torchvision()

from timm.models import load_state_dict  # noqa: E402  after the guard

OF_MODEL = "backbone.network."  # in a model of the project: the names of the weights of its network


def read_state(path: Path) -> dict[str, Tensor]:
    """The state dict of a .safetensors or weights-only .pth file.

    Wrappers of training runs (`model`, `state_dict`, `module.`) are removed. Of a model of the project
    (data/models/<d>/<m>/<s>/weights.safetensors) it is the network, without the head.

    Raises ValueError for another file, for one that differs from its published hash, and for weights that are
    not finite. The format of torch before 0.4, a tar archive, is refused, because torch extracts it to the
    disk.
    """
    require_published_bytes(path)
    try:
        if tarfile.is_tarfile(path):
            raise ValueError("it is a tar archive")
        state = load_state_dict(str(path), weights_only=True)
    except Exception as error:  # any error of a parser: UnpicklingError, struct.error, OSError of a seek
        if isinstance(error, OSError) and error.filename is not None:  # missing, or not permitted
            raise
        raise ValueError(
            f"The checkpoint {path} is neither a .safetensors file nor a weights-only .pth file: "
            f"{type(error).__name__}: {error}"
        ) from error
    for key, value in state.items():
        if not isinstance(value, Tensor):
            raise ValueError(
                f"The checkpoint {path} is not a table of weights: {key!r} is a {type(value).__name__}."
            )
        if not value.isfinite().all():
            raise ValueError(f"The checkpoint {path} has values that are not finite in {key}.")
    return {key.removeprefix(OF_MODEL): state[key] for key in state if key.startswith(OF_MODEL)} or state


def fit(network: Any, name: str, state: dict[str, Tensor], source: str) -> None:
    """Loads every weight of `state`, which is from `source`.

    Raises ValueError for missing and unexpected weights, except those of a classifier.
    """
    # The function in the module of a network that converts published files: names of keys, size of position
    # embeddings.
    convert = getattr(sys.modules[type(network).__module__], "checkpoint_filter_fn", None)
    if convert is not None:
        state = convert(state, network)
    classifier = network.default_cfg.get("classifier") or ()
    prefixes = tuple(f"{part}." for part in ((classifier,) if isinstance(classifier, str) else classifier))
    expected = network.state_dict()
    state = {key: value for key, value in state.items() if key in expected or not key.startswith(prefixes)}
    shapes = [
        f"{key} {tuple(value.shape)}, expected {tuple(expected[key].shape)}"
        for key, value in state.items()
        if key in expected and value.shape != expected[key].shape
    ]
    missing = [key for key in expected if key not in state and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in state if key not in expected]
    problems = [
        f"{len(keys)} {problem} ({'; '.join(keys[:6])}{'; ...' if len(keys) > 6 else ''})"
        for problem, keys in (("missing", missing), ("unexpected", unexpected), ("of another shape", shapes))
        if keys
    ]
    if problems:
        raise ValueError(f"The {source} does not fit {name}: {', '.join(problems)}.")
    network.load_state_dict(state, strict=False)
