"""Shards, embedding files, decoding, transforms, samplers, splits and loaders. `ingest` writes shards."""

from typing import TYPE_CHECKING

from unseen.runtime.lazy import lazy

if TYPE_CHECKING:
    from unseen.data.ingest.collection import Collection, Picture
    from unseen.data.ingest.files.tree import Tree
    from unseen.data.ingest.releases import Published, PublishedFile
    from unseen.data.sampler import Draw, drawn
else:
    __getattr__, __dir__ = lazy(__name__)

__all__ = ["Collection", "Draw", "Picture", "Published", "PublishedFile", "Tree", "drawn"]
