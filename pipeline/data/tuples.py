"""Batches of tuples: a query, a positive, and the hardest negatives of a random pool (Radenovic et al. 2018; IRT section 4.2).

Each epoch draws `batch.pairs` of the data set's pairs and a pool of `batch.pool` images. With z the embeddings by the network at the beginning of the
epoch, the negatives of query q are, for the clusters c of the pool other than that of q,

    x_c = argmax_{x in pool, cluster(x) = c} z_q . z_x,        those of the `negatives` clusters with the largest z_q . z_{x_c}

which is the released code's walk down the ranked pool: at most one image of a cluster, none of the query's (cnnimageretrieval-pytorch,
datasets/traindataset.py). A cluster is a class: the 3D model of an image. What the epoch draws is a pure function of (seed, epoch); which negatives
it finds is not, and is handed to `TupleSampler.begin`.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int, Int64

from pipeline.config.parts import Batch
from pipeline.data.sampler import Draw, augmentation_keys
from pipeline.runtime.errors import UserError

BLOCK = 256  # queries whose similarities to the pool are held at a time


class Plan(NamedTuple):
    """What an epoch draws by chance: positions among the training images."""

    pairs: Int64[np.ndarray, "P 2"]  # query, positive
    pool: Int64[np.ndarray, "M"]


class TupleSampler:
    """Draws batches of `batch.classes` tuples of `batch.images_per_class` images, tuple after tuple: query, positive, negatives.

    pairs: positions of query and positive among the training images; clusters: the class of each training image. An epoch has
    floor(P / batch.classes) batches, P = min(batch.pairs, pairs there are); what is left behind the last full one is left out.

    Raises UserError where the pairs do not fill one batch, or the pool has too few clusters for the negatives of a tuple.
    """

    excluded_classes = 0

    def __init__(self, pairs: Int[np.ndarray, "R 2"], clusters: Int[np.ndarray, "N"], batch: Batch, seed: int) -> None:
        self.pairs, self.clusters, self.batch, self.seed = pairs, clusters, batch, seed
        self.negatives = batch.images_per_class - 2
        self.steps_per_epoch = min(batch.pairs, len(pairs)) // batch.classes
        if self.steps_per_epoch == 0:
            raise UserError(
                f"A batch takes {batch.classes} tuples; an epoch draws {batch.pairs:,} pairs of the {len(pairs):,} that the data set has.",
                "Lower batch.classes, which counts the tuples of a batch, or raise batch.pairs.",
            )
        self._epoch: tuple[int, Int64[np.ndarray, "P K"]] | None = None

    def plan(self, epoch: int) -> Plan:
        """The pairs and the pool of an epoch. Raises UserError where the pool has too few clusters."""
        generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([self.seed, epoch])))
        pairs = self.pairs[generator.permutation(len(self.pairs))[: self.steps_per_epoch * self.batch.classes]]
        pool = generator.permutation(len(self.clusters))[: self.batch.pool]
        held = len(np.unique(self.clusters[pool]))
        if held <= self.negatives:
            raise UserError(
                f"A pool of {len(pool):,} images of {held} classes cannot give {self.negatives} negatives of as many classes beside the query's.",
                "Raise batch.pool, lower loss.negatives and batch.images_per_class, or train on more classes.",
            )
        return Plan(pairs.astype(np.int64), pool.astype(np.int64))

    def tuples(self, plan: Plan, embeddings: Float32[np.ndarray, "N D"]) -> Int64[np.ndarray, "P K"]:
        """The tuples of a plan, as positions. Rows of `embeddings` that the plan does not name are not looked at."""
        queries = plan.pairs[:, 0]
        found = hardest(embeddings[queries], self.clusters[queries], embeddings[plan.pool], self.clusters[plan.pool], self.negatives)
        return np.concatenate([plan.pairs, plan.pool[found]], axis=1)

    def begin(self, epoch: int, tuples: Int64[np.ndarray, "P K"]) -> None:
        """Hands over the tuples of an epoch, from which `draw` takes its batches."""
        wanted = (self.steps_per_epoch * self.batch.classes, self.batch.images_per_class)
        if tuples.shape != wanted:
            raise ValueError(f"epoch {epoch} has {wanted[0]} tuples of {wanted[1]} images, got an array of {tuples.shape}")
        self._epoch = (epoch, tuples)

    def draw(self, step: int) -> Draw:
        """The global batch of `step`. Raises ValueError where its epoch has not begun."""
        epoch, within = divmod(step, self.steps_per_epoch)
        if self._epoch is None or self._epoch[0] != epoch:
            raise ValueError(f"step {step} belongs to epoch {epoch}, whose tuples were not handed over")
        places = np.arange(self.batch.size) + within * self.batch.size  # an image may stand in several tuples
        positions = self._epoch[1].reshape(-1)[places]
        return Draw(positions, augmentation_keys(self.seed, epoch, positions, places))


def hardest(
    queries: Float32[np.ndarray, "Q D"],
    query_clusters: Int[np.ndarray, "Q"],
    pool: Float32[np.ndarray, "M D"],
    pool_clusters: Int[np.ndarray, "M"],
    count: int,
) -> Int64[np.ndarray, "Q F"]:
    """Positions in the pool of the `count` negatives of each query, hardest first. Equal ones: the lower cluster, then the one earlier in the pool.

    Memory: a block of queries against the pool. Raises ValueError where a query has fewer than `count` other clusters.
    """
    order = np.argsort(pool_clusters, kind="stable")
    clusters, starts = np.unique(pool_clusters[order], return_index=True)
    ends = np.append(starts[1:], len(order))
    if len(queries) and (others := len(clusters) - np.isin(query_clusters, clusters).astype(int)).min() < count:
        raise ValueError(f"{count} negatives of different clusters were asked for, and a query has {others.min()} other clusters in the pool")
    transposed = np.ascontiguousarray(pool[order].T)
    found = np.empty((len(queries), count), np.int64)
    for first in range(0, len(queries), BLOCK):
        similarities = queries[first : first + BLOCK] @ transposed
        best = np.maximum.reduceat(similarities, starts, axis=1)
        best[query_clusters[first : first + BLOCK, None] == clusters] = -np.inf
        chosen = np.argsort(-best, axis=1, kind="stable")[:, :count]
        for row, columns in enumerate(chosen.tolist()):
            found[first + row] = [order[starts[c] + similarities[row, starts[c] : ends[c]].argmax()] for c in columns]
    return found
