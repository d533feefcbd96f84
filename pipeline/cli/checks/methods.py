"""The properties of methods."""

import torch
from torch import Tensor

from unseen.cli.checks.common import (
    ALONE,
    CLASSES,
    SAMPLES,
    drawn_images,
    require,
    require_equal,
    require_trained,
)
from unseen.methods.build import initial_method
from unseen.methods.method import Method
from unseen.methods.settings import Recipe


def _method(recipe: Recipe) -> tuple[Method, Tensor, Tensor]:
    """A method in training mode, and a batch of three images of each class."""
    method = initial_method(recipe, CLASSES, SAMPLES, seed=0).train()
    return method, drawn_images(3 * CLASSES, recipe.input.size), torch.arange(3 * CLASSES) // 3


def unit_vectors(recipe: Recipe) -> None:
    """An image gives a unit vector of dim numbers, which does not depend on the other images."""
    method, images, _ = _method(recipe)
    vectors = method.eval().embed(images)
    what = f"The vectors of 12 images have the shape {tuple(vectors.shape)}; dim is {method.dim}."
    require(vectors.shape == (len(images), method.dim), what, "Correct dim or the embedding of Outputs.")
    ones = torch.ones(len(images))
    require_equal(vectors.norm(dim=1), ones, "The lengths and 1", "Use `unit`.", tolerance=1e-4)
    one = method.embed(images[:1])
    require_equal(one, vectors[:1], "The vectors of an image in two batches", ALONE, tolerance=1e-4)


def terms(recipe: Recipe) -> None:
    """The terms of a batch are finite numbers, and equal for one and for two workers."""
    totals = []
    for slices in (1, 2):
        method, images, labels = _method(recipe)
        parts = [method(part) for part in images.chunk(slices)]
        fields = {name: [getattr(part, name) for part in parts] for name in vars(parts[0])}
        gathered = {name: None if each[0] is None else torch.cat(each) for name, each in fields.items()}
        values = method.objective(type(parts[0])(**gathered), labels, torch.arange(len(labels)))
        require(bool(values), "There is no term.", "Return the terms of the loss by name.")
        for name, each in values.items():
            is_number = each.shape == () and bool(each.isfinite())
            require(is_number, f"Term {name} is {each.tolist()}.", "Return finite numbers of the batch.")
        totals.append(torch.stack(list(values.values())))
    remedy = "Each tensor of Outputs has a row for each image; terms read nothing else of a worker."
    require_equal(totals[0], totals[1], "The terms of one and two workers", remedy, tolerance=1e-4)


def parameters_of_method(recipe: Recipe) -> None:
    """Every parameter has a gradient, and is in one group of the optimizer."""
    method, images, labels = _method(recipe)
    values = method.objective(method(images), labels, torch.arange(len(labels)))
    torch.stack(list(values.values())).sum().backward()
    require_trained(method, start_may_be_zero=True)
    grouped = sum(map(len, method.parameter_groups().values()))
    trained = sum(parameter.requires_grad for parameter in method.parameters())
    what = f"The groups have {grouped} parameters, the method {trained}."
    require(grouped == trained, what, "Let proxies() return each of its vectors once.")
