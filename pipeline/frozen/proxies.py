"""Part of a network that is trained with proxies of the classes: the loss, its start, and the recipe.

The loss (cosine softmax, CosFace or ArcFace) has a proxy per class, which starts at the mean feature of its
class.
"""

import numpy as np
import torch
from jaxtyping import Float, Float32, Int, Int64
from torch import Tensor, nn

from unseen.config.layers import Layers, dotted
from unseen.config.place import Place
from unseen.losses.settings import ArcFaceLoss, CosFaceLoss, NormalizedSoftmaxLoss, ProxyLoss
from unseen.methods import modules
from unseen.methods.method import Method, Observed, Outputs, unit
from unseen.methods.settings import Optimizer, Recipe, Schedule
from unseen.networks.backbone import Backbone

PROXY_RATE = 1e-2  # of the proxies, AdamW
# Losses by name. Scale 20 is the temperature 0.05 of the normalised softmax. The margins are smaller than
# those of the papers, which train whole networks at scale 64.
LOSSES: dict[str, ProxyLoss] = {
    "nsoftmax": NormalizedSoftmaxLoss(temperature=0.05),
    "cosface": CosFaceLoss(scale=20.0, margin=0.1),
    "arcface": ArcFaceLoss(scale=20.0, margin=0.1),
}


class ProxyMethod(Method):
    """The vector of each image that a backbone gives as its class token, with a loss of LOSSES."""

    def __init__(self, backbone: Backbone, criterion: nn.Module) -> None:
        super().__init__()
        self.backbone, self.criterion = backbone, criterion
        self.dim = criterion.get_parameter("proxies").shape[1]

    def forward(self, images: Float[Tensor, "B V"]) -> Outputs:
        vectors = self.backbone(images).cls
        assert vectors is not None, "the backbone has no class token"
        return Outputs(self.vectors(vectors))

    def vectors(self, features: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        """The embedding of features. They have unit length already."""
        return features

    def terms(
        self, outputs: Outputs, labels: Int[Tensor, "B"], samples: Int[Tensor, "B"], observed: Observed
    ) -> dict[str, Float[Tensor, ""]]:
        return {"loss": self.criterion(outputs.embedding, labels)}

    def proxies(self) -> list[nn.Parameter]:
        return list(self.criterion.parameters())


def criterion_of(
    loss: str, features: Float32[np.ndarray, "N D"], targets: Int64[np.ndarray, "N"]
) -> nn.Module:
    """The loss of a name of LOSSES, with the proxies at the mean features of their classes, 0 to C - 1."""
    classes, dim = int(targets.max()) + 1, features.shape[1]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        criterion = modules.loss(LOSSES[loss], classes=classes, dim=dim)
        means = torch.zeros(classes, dim)
        means.index_add_(0, torch.from_numpy(targets), torch.from_numpy(features))
        criterion.get_parameter("proxies").copy_(unit(means))
    return criterion


def proxy_recipe(loss: str, images: int, steps: int, optimizer: Optimizer, schedule: Schedule) -> Recipe:
    """The settings of a training of `steps` batches of `images` images, drawn without regard to classes."""
    fields = {
        "dim": None,
        "loss": LOSSES[loss].model_dump(mode="json"),
        "batch": {"classes": images, "images_per_class": 1, "sampling": "shuffled"},
        "optimizer": optimizer.model_dump(mode="json"),
        "schedule": schedule.model_dump(mode="json"),
        "training": {"protocol": "published", "iterations": steps, "precision": "float32"},
    }
    return Layers("baseline", (dotted(Place("A training with proxies"), fields),)).recipe()
