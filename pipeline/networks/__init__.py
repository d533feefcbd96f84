"""Networks from images to feature maps, and blocks on feature maps. They import torch and timm only."""

from typing import TYPE_CHECKING

from unseen.runtime.lazy import lazy

if TYPE_CHECKING:
    from unseen.networks.backbone import Backbone, Features
    from unseen.networks.staged import Published, Staged
else:
    __getattr__, __dir__ = lazy(__name__)

__all__ = ["Backbone", "Features", "Published", "Staged"]
