"""Parameters and operations of an embedding."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from unseen.methods.build import initial_method
from unseen.methods.settings import Cost, Recipe

_CLASSES, _SAMPLES = 100, 5000  # of training; an embedding does not depend on them


def cost_of(recipe: Recipe) -> Cost:
    """The cost of the embedding of one image, counted while a black image is embedded with random weights, on
    the CPU.

    parameters: those on which the embedding depends, without proxies, classifiers and branches that only
    training needs. flops: of matrix products and convolutions, two for a multiplication and an addition.
    """
    backbone = recipe.backbone.model_copy(update={"pretrained": False, "checkpoint": None})
    untrained = recipe.model_copy(update={"backbone": backbone})
    method = initial_method(untrained, _CLASSES, _SAMPLES, seed=0).eval()
    for parameter in method.parameters():
        parameter.requires_grad_(True)
    size = recipe.input.size
    with torch.enable_grad():
        with FlopCounterMode(display=False) as counter:
            embedding = method.embed(torch.zeros(1, 3, size, size))
        used = torch.autograd.grad(embedding.sum(), list(method.parameters()), allow_unused=True)
    parameters = sum(gradient.numel() for gradient in used if gradient is not None)
    return Cost(parameters=parameters, flops=counter.get_total_flops())
