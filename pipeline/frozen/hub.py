"""Networks by the names of the Hugging Face hub, also of repositories that timm does not name."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from unseen.frozen.network import Network
from unseen.networks.backbone import RESERVED
from unseen.networks.hub import fetched
from unseen.networks.hub_names import name_of_timm, repository_of
from unseen.networks.published_network import Published, preprocessing, published, timm
from unseen.runtime.errors import UserError

from timm.models import PretrainedCfg  # isort: skip  after the guard of published_network
from timm.models._hub import load_model_config_from_path  # isort: skip


def of_hub(network: Network) -> Network:
    """The network, whose name is of timm or `owner/name[@revision]` of a repository, by its name of timm.

    The weights of a repository that timm does not publish are downloaded: model.safetensors. Its config.json,
    as timm writes it, states preprocessing and arguments of timm.create_model, which `arguments` replace.

    Raises UserError if one of the two files is missing or of another kind, and for `weights` or `statistics`
    of such a repository.
    """
    network = replace(network, name=name_of_timm(network.name))
    repository = repository_of(network.name)
    if repository is None:
        return network
    if network.weights is not None or network.statistics is not None:
        raise UserError(f"The weights of {repository} are there.", "Leave out --weights and --statistics.")
    try:
        name, arguments, about = _stated(repository, fetched(repository, "config.json"))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        problem = f"config.json of the repository {repository} cannot be used: {error}"
        raise UserError(problem, "Name another network.") from error
    weights = fetched(repository, "model.safetensors")
    return replace(
        network, name=name, weights=weights, arguments=arguments | dict(network.arguments), about=about
    )


def _stated(repository: str, config: Path) -> tuple[str, dict[str, Any], Published]:
    """Architecture, arguments and preprocessing. Raises UserError if the file is not one of timm, and an
    error of Python if it is damaged."""
    content = json.loads(config.read_text(encoding="utf-8"))
    if "architecture" not in content:
        kind = str(content.get("model_type", "unknown"))
        similar = ", ".join(timm.list_pretrained(f"*{kind}*")[:4]) or "any"
        problem = f"timm cannot load {repository}: its config.json names no architecture of timm ({kind})."
        raise UserError(problem, f"Name a network of timm with published weights: {similar}.")
    settings, architecture, options = load_model_config_from_path(config.parent)
    if refused := (RESERVED - {"num_classes", "in_chans"}) & options.keys():
        raise ValueError(f"its model_args contain {sorted(refused)}")
    options = {key: value for key, value in options.items() if key not in RESERVED}
    stated = preprocessing(repository, PretrainedCfg(**settings | {"hf_hub_id": repository}))
    return architecture, options, replace(published(architecture), name=repository, **stated)
