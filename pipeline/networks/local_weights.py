"""Whether the pretrained weights of a network are on this machine, without a connection."""

import socket
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch
from huggingface_hub import constants, try_to_load_from_cache

from unseen.networks.networks import PROJECT_NETWORKS
from unseen.networks.torchvision_guard import ensure_torchvision

ensure_torchvision()

import timm  # noqa: E402  after the guard

_HUB = "https://huggingface.co/"
_FILES = ("model.safetensors", "pytorch_model.bin")  # in the order in which timm looks for them


class Weights(NamedTuple):
    """The published weights of a network."""

    file: str  # its name and place on a server
    path: Path | None  # on this machine


def weights_of(name: str) -> Weights:
    """The published weights of network `name` in the caches of the Hugging Face hub and of torch.

    Raises ValueError for a network without published weights.
    """
    if name in PROJECT_NETWORKS:
        published = PROJECT_NETWORKS[name].build({}).published
        if published is None:
            raise ValueError(f"{name} has no published weights")
        if published.page.startswith(_HUB):
            return _on_hub(published.page.removeprefix(_HUB), (published.file,))
        return _in_torch_cache(f"{published.page}/{published.file}", published.file)
    settings = timm.get_pretrained_cfg(name)
    if settings is None or not settings.has_weights:
        raise ValueError(f"{name} has no published weights")
    if settings.hf_hub_id:
        files = (settings.hf_hub_filename,) if settings.hf_hub_filename else _FILES
        return _on_hub(settings.hf_hub_id, files)
    return _in_torch_cache(settings.url, Path(settings.url).name)


def require_available(name: str) -> None:
    """Raises ConnectionError if the published weights of network `name` are neither on this machine nor can
    the name of their server be resolved."""
    weights = weights_of(name)
    if weights.path is None:
        require_connection(constants.ENDPOINT if _HUB in weights.file else weights.file)


def require_connection(page: str) -> None:
    """Raises ConnectionError if the name of the server of `page` cannot be resolved.

    The libraries would try for a minute. A proxy resolves names itself, so that it is not tested.
    """
    host = urlsplit(page).hostname
    if host is None or getproxies():
        return
    try:
        socket.getaddrinfo(host, None)
    except OSError as error:
        raise ConnectionError(f"there is no connection to {host}") from error


def _on_hub(repository: str, files: tuple[str, ...]) -> Weights:
    for file in files:
        path = try_to_load_from_cache(repository, file)
        if isinstance(path, str):  # otherwise None, or an object for a file that the repository lacks
            return Weights(f"{file} of {_HUB}{repository}", Path(path))
    return Weights(f"{files[0]} of {_HUB}{repository}", None)


def _in_torch_cache(url: str, file: str) -> Weights:
    path = Path(torch.hub.get_dir(), "checkpoints", file)
    return Weights(url, path if path.is_file() else None)
