"""Which positions of test images determine their embeddings by a trained model: the positions file (format:
pipeline/data/positions.py).

The images are a seeded sample of the test images, and QUERIES seeded queries with their nearest right and
nearest wrong match. The sample and the queries depend on the row ids only, so all methods of a data set have
the same. Each image of the sample and each query has the maps that describe its whole embedding. A query and
its matches have contributions to their similarity, or the first map of the recipe if a method has no
contributions. Only queries have maps of single prototypes and points.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from unseen.data import embeddings as embedding_file
from unseen.data.centre import Region, region_for_testing
from unseen.data.decode import decode
from unseen.data.embeddings import Embeddings
from unseen.data.judge import judge_of
from unseen.data.loader import EvalLoader, normalize
from unseen.data.positions import Match, PositionMap, Positions, QueryMatches, write
from unseen.data.settings import Input
from unseen.data.shards import Shards
from unseen.data.transforms import pixels_of
from unseen.methods.artifact import LoadedModel, load_method
from unseen.methods.explain.contribution import NotNormalised, contributions
from unseen.methods.explain.weights import PositionWeights, position_functions
from unseen.runtime.cores import loader_threads_of
from unseen.runtime.device.transfer import DeviceToHost, one_late
from unseen.runtime.names import say
from unseen.runtime.parts import outside_fields
from unseen.training.embed import on_device
from unseen.training.export.model import compute_threads, device

IMAGES = 256  # of the sample; with fewer test images all of them
QUERIES = 4
SEED = 0
BATCH = 32  # images at a time: a second-order attention has P x P weights for each


def export_positions(shards: Path, model: Path, embeddings: Path, output: Path) -> None:
    """Writes the positions file of the selected weights of `model`.

    A message on stderr names positions without contributions, because `unit` did not normalise the embedding.
    embeddings: the file of the test images by the same weights; the matches are among these images.
    Raises UserError as `load_method` and the loader do, and for weights that are not finite.
    """
    data, test = Shards(shards), embedding_file.read(embeddings)
    queries = choose_queries(data, test)
    drawn = np.random.default_rng(SEED).permutation(test.row_id)[:IMAGES]
    sample = np.union1d(drawn, [query.row_id for query in queries]).astype(np.int64)
    loaded = load_method(model)
    loaded.method.requires_grad_(False)
    with (
        compute_threads(loaded.recipe.training.threads),
        torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False),
    ):
        explain = _Explanations(loaded)
        weights = chain(
            _of_sample(data, loaded, sample, explain), _of_queries(data, loaded, test, queries, explain)
        )
        maps = [each for of_batch in one_late(weights) for each in _maps(data, loaded.recipe.input, of_batch)]
    write(output, Positions(tuple(maps), queries))


def choose_queries(data: Shards, test: Embeddings) -> tuple[QueryMatches, ...]:
    """The first QUERIES of the permuted queries that have a right match, with their nearest right and nearest
    wrong match; equal similarities are ordered by row id."""
    judge = judge_of(data)
    gallery, gallery_rows = test.embedding[test.is_gallery], test.row_id[test.is_gallery]
    place = {int(row): position for position, row in enumerate(test.row_id)}
    queries: list[QueryMatches] = []
    for row in np.random.default_rng(SEED).permutation(test.row_id[test.is_query]).tolist():
        similarities = gallery @ test.embedding[place[row]]
        nearest: dict[bool, Match] = {}
        for position in np.lexsort((gallery_rows, -similarities)).tolist():
            match = int(gallery_rows[position])
            is_right = None if match == row else judge(row, match)
            if is_right is not None and is_right not in nearest:
                nearest[is_right] = Match(match, round(float(similarities[position]), 6))
                if len(nearest) == 2:
                    break
        if True in nearest:
            queries.append(QueryMatches(row, nearest[True], nearest.get(False)))
        if len(queries) == QUERIES:
            break
    return tuple(queries)


class _OfBatch:
    """Weights of the images of `rows`, whose copies to the host are queued."""

    def __init__(
        self, rows: list[int], weights: PositionWeights, references: list[int] | None = None
    ) -> None:
        self.rows, self.references = rows, references
        self.name, self.detail, self.size = weights.name, weights.detail, (weights.height, weights.width)
        self.weights = DeviceToHost(weights.weights.float())
        self.prototype = None if weights.prototype is None else DeviceToHost(weights.prototype)
        self.point = None if weights.point is None else DeviceToHost(weights.point)


def _of_sample(
    data: Shards, loaded: LoadedModel, rows: Int64[np.ndarray, "n"], explain: "_Explanations"
) -> Iterator[_OfBatch]:
    """The maps that describe whole embeddings: those of the recipe, then the contributions to the similarity
    of an image with itself."""
    for images, batch in _batches(data, loaded, rows):
        for each in (*explain.of_recipe(images), *explain.contributions(images)):
            if not each.detail:
                yield _OfBatch(batch, each)


def _of_queries(
    data: Shards,
    loaded: LoadedModel,
    test: Embeddings,
    queries: tuple[QueryMatches, ...],
    explain: "_Explanations",
) -> Iterator[_OfBatch]:
    """The maps of single prototypes and points of the queries, and the contributions of each query and its
    matches to their similarity."""
    rows = np.array([query.row_id for query in queries], np.int64)
    for images, batch in _batches(data, loaded, rows):
        for weights in explain.of_recipe(images):
            if weights.detail:
                yield _OfBatch(batch, weights)
    pairs = [
        pair
        for query in queries
        for match in (query.right, query.wrong)
        if match is not None
        for pair in ((query.row_id, match.row_id), (match.row_id, query.row_id))
    ]
    place = {int(row): position for position, row in enumerate(test.row_id)}
    vectors = torch.from_numpy(test.embedding[[place[reference] for _, reference in pairs]])
    done = 0
    for images, batch in _batches(data, loaded, np.array([row for row, _ in pairs], np.int64)):
        part = slice(done, done + len(batch))
        done += len(batch)
        pair_maps = explain.contributions(images, vectors[part].to(images.device))
        for weights in pair_maps or explain.of_recipe(images)[:1]:
            yield _OfBatch(batch, weights, [reference for _, reference in pairs[part]])


class _Explanations:
    """The maps of images. Those that cannot be computed are left out, after a remark on the standard error:
    the contributions of a method that has none, and all that fail in a recipe with parts from outside."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._loaded = loaded
        self._expected = Exception if outside_fields(loaded.recipe) else NotNormalised
        self._failed: set[str] = set()

    def contributions(self, images: Tensor, references: Tensor | None = None) -> list[PositionWeights]:
        """The contributions of positions to the similarity with a reference, of an image with itself."""
        method = self._loaded.method
        return self._of("contributions", lambda: [contributions(method, images, references)])

    def of_recipe(self, images: Tensor) -> list[PositionWeights]:
        method, recipe = self._loaded.method, self._loaded.recipe
        return self._of(
            "maps",
            lambda: [map for function in position_functions(recipe) for map in function(method, images)],
        )

    def _of(
        self, kind: str, compute: Callable[[], Sequence[PositionWeights | None]]
    ) -> list[PositionWeights]:
        if kind in self._failed:
            return []
        try:
            return [weights for weights in compute() if weights is not None]
        except self._expected as error:
            self._failed.add(kind)
            is_outside = not isinstance(error, NotNormalised)
            say(f"export: {f'no {kind}: {type(error).__name__}: ' if is_outside else ''}{error}")
            return []


def _batches(
    data: Shards, loaded: LoadedModel, rows: Int64[np.ndarray, "n"]
) -> Iterator[tuple[Tensor, list[int]]]:
    """Normalised images on the device of the model, and their rows."""
    method = loaded.method.to(device())
    statistics = method.statistics(loaded.recipe.input)
    loader = EvalLoader(data, rows, loaded.recipe.input, BATCH, loader_threads_of(1))
    for images, ids in on_device(loader, device()):
        yield normalize(images, *statistics), ids.tolist()


def _maps(data: Shards, input: Input, weights: _OfBatch) -> Iterator[PositionMap]:
    values: Float32[np.ndarray, "B P"] = weights.weights.wait().numpy()
    for index, row in enumerate(weights.rows):
        prototype: Any = None if weights.prototype is None else weights.prototype.wait()[index].numpy()
        point = None if weights.point is None else weights.point.wait()[index].tolist()
        yield PositionMap(
            row,
            int(data.labels[row]),
            source=data.source(row),
            region=_region(data, row, input),
            name=weights.name,
            weights=values[index].reshape(weights.size),
            detail=weights.detail,
            reference=None if weights.references is None else weights.references[index],
            prototype=None if prototype is None else prototype.astype(np.int32).reshape(weights.size),
            point=None if point is None else (point[0], point[1]),
        )


def _region(data: Shards, row: int, input: Input) -> Region:
    """The region of the network's input in an image, or in the box of a query of a landmark set."""
    height, width = decode(data.image(row)).shape[:2]
    box = data.box(row)
    left, top, right, bottom = (0, 0, width, height) if box is None else pixels_of(box, width, height)
    inner = region_for_testing(right - left, bottom - top, input)
    return (
        (left + inner[0] * (right - left)) / width,
        (top + inner[1] * (bottom - top)) / height,
        (left + inner[2] * (right - left)) / width,
        (top + inner[3] * (bottom - top)) / height,
    )
