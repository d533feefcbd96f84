"""Published weights into a network: read without running code, renamed as the network's library does it, every key accounted for."""

import pickle
import sys
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from pipeline.models.torchvision_guard import ensure_torchvision

ensure_torchvision()

from timm.models import load_state_dict  # noqa: E402  after the guard


def read_state(path: Path) -> dict[str, Tensor]:
    """The state dict of a .safetensors or weights-only .pth file, out of what a training run wraps around it (`model`, `state_dict`, `module.`).

    Raises ValueError for a file that is neither.
    """
    try:
        return load_state_dict(str(path), weights_only=True)
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, ValueError, AttributeError) as error:
        raise ValueError(
            f"The checkpoint {path} is neither a .safetensors file nor a weights-only .pth file: {type(error).__name__}: {error}"
        ) from error


def fit(network: Any, name: str, state: dict[str, Tensor], source: str) -> None:
    """Loads every weight of `state`, which came from `source`; whatever is left over or lacking, the classifier apart, is a ValueError."""
    # The conversion of published files that stands beside a network: other key names, position embeddings of another image size.
    convert = getattr(sys.modules[type(network).__module__], "checkpoint_filter_fn", None)
    if convert is not None:
        state = convert(state, network)
    classifier = network.default_cfg.get("classifier") or ()
    prefixes = tuple(f"{part}." for part in ((classifier,) if isinstance(classifier, str) else classifier))
    own = network.state_dict()
    state = {key: value for key, value in state.items() if key in own or not key.startswith(prefixes)}
    shapes = [f"{k} {tuple(state[k].shape)}, expected {tuple(own[k].shape)}" for k in state if k in own and state[k].shape != own[k].shape]
    missing = [key for key in own if key not in state and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in state if key not in own]
    findings = [
        f"{len(keys)} {what} ({'; '.join(keys[:6])}{'; ...' if len(keys) > 6 else ''})"
        for what, keys in (("missing", missing), ("unexpected", unexpected), ("of another shape", shapes))
        if keys
    ]
    if findings:
        raise ValueError(f"The {source} does not fit {name}: {', '.join(findings)}.")
    network.load_state_dict(state, strict=False)
