"""Batches of tuples: a query, a positive, and the hardest negatives of a random pool.

(Radenovic et al. 2018; IRT section 4.2.)

Each epoch draws `batch.pairs` pairs of the data set and a pool of `batch.pool` images. With z the embeddings
of the network at the start of the epoch, and for the clusters c of the pool other than that of query q,

    x_c = argmax_{x in pool, cluster(x) = c} z_q . z_x

the negatives of q are the x_c of the `negatives` clusters with the largest z_q . z_{x_c}. This equals the
released code, which selects from the ranked pool at most one image of a cluster and none of the query's
cluster (cnnimageretrieval-pytorch, datasets/traindataset.py). A cluster is a class: the 3D model of an image.
The pairs and the pool are a pure function of (seed, epoch). The negatives also depend on the network;
`TupleSampler.begin` receives them.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int, Int64

from unseen.data.sampler import Draw, augmentation_keys
from unseen.data.settings import Batch
from unseen.runtime.errors import UserError

BLOCK = 256  # queries whose similarities with the pool are in memory at a time


class TupleDraw(NamedTuple):
    """The random draw of an epoch, as positions among the training images."""

    pairs: Int64[np.ndarray, "P 2"]  # query, positive
    pool: Int64[np.ndarray, "M"]


class TupleSampler:
    """Batches of `batch.classes` tuples of `batch.images_per_class` images: query, positive, negatives.

    pairs: positions of query and positive among the training images. clusters: the class of each training
    image. An epoch has floor(P / batch.classes) batches, P = min(batch.pairs, number of pairs); pairs after
    the last full batch are omitted.

    Raises UserError if the pairs do not fill one batch.
    """

    excluded_classes = 0

    def __init__(
        self, pairs: Int[np.ndarray, "R 2"], clusters: Int[np.ndarray, "N"], batch: Batch, seed: int
    ) -> None:
        self.pairs, self.clusters, self.batch, self.seed = pairs, clusters, batch, seed
        self.negatives = batch.images_per_class - 2
        self.steps_per_epoch = min(batch.pairs, len(pairs)) // batch.classes
        if self.steps_per_epoch == 0:
            raise UserError(
                f"A batch has {batch.classes} tuples, but an epoch draws {batch.pairs:,} "
                f"of the {len(pairs):,} pairs of the data set.",
                "Lower batch.classes, which is the number of tuples of a batch, or raise batch.pairs.",
            )
        self._epoch: tuple[int, Int64[np.ndarray, "P K"]] | None = None

    def plan(self, epoch: int) -> TupleDraw:
        """The pairs and the pool of an epoch. Raises UserError if the pool has too few clusters."""
        generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([self.seed, epoch])))
        pairs = self.pairs[
            generator.permutation(len(self.pairs))[: self.steps_per_epoch * self.batch.classes]
        ]
        pool = generator.permutation(len(self.clusters))[: self.batch.pool]
        classes = len(np.unique(self.clusters[pool]))
        if classes <= self.negatives:
            raise UserError(
                f"A pool of {len(pool):,} images of {classes} classes is too small for {self.negatives} "
                "negatives of different classes other than that of the query.",
                "Raise batch.pool, lower loss.negatives and batch.images_per_class, or use more classes.",
            )
        return TupleDraw(pairs.astype(np.int64), pool.astype(np.int64))

    def tuples(self, plan: TupleDraw, embeddings: Float32[np.ndarray, "N D"]) -> Int64[np.ndarray, "P K"]:
        """The tuples of a plan, as positions. Only the rows of `embeddings` in the plan are read."""
        queries, clusters = plan.pairs[:, 0], self.clusters
        negatives = hardest(
            embeddings[queries], clusters[queries], embeddings[plan.pool], clusters[plan.pool], self.negatives
        )
        return np.concatenate([plan.pairs, plan.pool[negatives]], axis=1)

    def begin(self, epoch: int, tuples: Int64[np.ndarray, "P K"]) -> None:
        """Sets the tuples of an epoch, from which `draw` takes its batches."""
        shape = (self.steps_per_epoch * self.batch.classes, self.batch.images_per_class)
        if tuples.shape != shape:
            raise ValueError(
                f"epoch {epoch} has {shape[0]} tuples of {shape[1]} images, got an array of {tuples.shape}"
            )
        self._epoch = (epoch, tuples)

    def draw(self, step: int) -> Draw:
        """The global batch of `step`. Raises ValueError if `begin` was not called for its epoch."""
        epoch, within = divmod(step, self.steps_per_epoch)
        if self._epoch is None or self._epoch[0] != epoch:
            raise ValueError(f"step {step} belongs to epoch {epoch}, whose tuples are not set")
        places = np.arange(self.batch.size) + within * self.batch.size  # an image can be in several tuples
        positions = self._epoch[1].reshape(-1)[places]
        return Draw(positions, augmentation_keys(self.seed, epoch, positions, places))


def hardest(
    queries: Float32[np.ndarray, "Q D"],
    query_clusters: Int[np.ndarray, "Q"],
    pool: Float32[np.ndarray, "M D"],
    pool_clusters: Int[np.ndarray, "M"],
    count: int,
) -> Int64[np.ndarray, "Q F"]:
    """Positions in the pool of the `count` negatives of each query, hardest first.

    The order of equal similarities is that of the cluster, then of the position in the pool. Memory: the
    similarities of a block of queries with the pool. Raises ValueError if a query has fewer than `count`
    other clusters.
    """
    order = np.argsort(pool_clusters, kind="stable")
    clusters, starts = np.unique(pool_clusters[order], return_index=True)
    ends = np.append(starts[1:], len(order))
    others = len(clusters) - np.isin(query_clusters, clusters).astype(int)
    if len(queries) and others.min() < count:
        raise ValueError(f"expected {count} other clusters in the pool for each query, got {others.min()}")
    transposed = np.ascontiguousarray(pool[order].T)
    negatives = np.empty((len(queries), count), np.int64)
    for first in range(0, len(queries), BLOCK):
        similarities = queries[first : first + BLOCK] @ transposed
        best = np.maximum.reduceat(similarities, starts, axis=1)
        best[query_clusters[first : first + BLOCK, None] == clusters] = -np.inf
        chosen = np.argsort(-best, axis=1, kind="stable")[:, :count]
        for row, columns in enumerate(chosen.tolist()):
            nearest = [starts[c] + similarities[row, starts[c] : ends[c]].argmax() for c in columns]
            negatives[first + row] = order[nearest]
    return negatives
