"""The properties of networks."""

import torch

from unseen.cli.checks.common import (
    ALONE,
    FINITE,
    built,
    drawn_images,
    require,
    require_equal,
    require_trained,
)
from unseen.methods import modules
from unseen.networks.settings import Backbone


def maps(settings: Backbone) -> None:
    """Each stage gives a finite map of its channels, and every parameter has a gradient."""
    network = built(lambda: modules.backbone(settings))
    features = network(drawn_images(2, 64)).maps
    shapes, channels = [tuple(each.shape[:2]) for each in features], network.channels
    what = f"The maps of two images have the shapes {shapes}; the channels are {channels}."
    require(shapes == [(2, each) for each in channels], what, "Correct channels or plan.")
    require(all(each.isfinite().all() for each in features), "A map is not finite.", FINITE)
    torch.stack([each.square().sum() for each in features]).sum().backward()
    require_trained(network, start_may_be_zero=True)


def each_image_of_maps(settings: Backbone) -> None:
    """The maps of an image in evaluation do not depend on the other images."""
    network, images = built(lambda: modules.backbone(settings)).eval(), drawn_images(3, 64)
    for one, all_ in zip(network(images[:1]).maps, network(images).maps, strict=True):
        require_equal(one, all_[:1], "The maps of an image in two batches", ALONE, tolerance=1e-4)
