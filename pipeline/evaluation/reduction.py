"""Linear reduction of embeddings to d dimensions: PCA, PCA whitening, supervised whitening.

It is learned on the training set. Reduced embeddings have unit length:

    y = P (x - m),   stored y / |y|

With X the training embeddings, C = (1 / N) sum_i (x_i - m)(x_i - m)^T = E diag(l) E^T, l descending, E_d its
first d columns:

    PCA                  m = mean of X               P = E_d^T
    PCA whitening        m = mean of X               P = diag(l_1 .. l_d)^(-1/2) E_d^T
    supervised whitening m = mean of the x_a         P = F_d^T L^-1,
                         S = (1 / |pairs|) sum over pairs (a, b) of (x_a - x_b)(x_a - x_b)^T = L L^T,
                         C' = sum_i z_i z_i^T = F diag(k) F^T,   z_i = L^-1 (x_i - m)

(Jegou and Chum, Negative evidences and co-occurences in image retrieval, sec. 3; Mikolajczyk and Matas,
Improving descriptors for fast tree matching; released code cnnimageretrieval-pytorch, utils/whiten.py, whose
m of the supervised form is also the mean of the first members of the pairs.) The mean and the covariance are
summed in float64 in blocks: memory is that of D x D and one block.

Deviations from the released code: 1e-6 is not added to the norm; a direction without variance raises an error
instead of a division by nearly zero; a singular S raises an error instead of being regularised; the largest
entry of each row of P is positive, so that the same data give the same file.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
import safetensors.numpy
from jaxtyping import Float32, Float64, Int64

from unseen.data.embeddings import read
from unseen.evaluation.settings import Reduce
from unseen.runtime.errors import UserError
from unseen.runtime.files import atomic_file

PAIRS = "pairs.parquet"  # matching images, by row id
BLOCK = 8192  # rows in float64 at a time


class Reduction(NamedTuple):
    """x -> P (x - m)."""

    mean: Float64[np.ndarray, "D"]
    projection: Float64[np.ndarray, "d D"]


def fit_pca(embeddings: Float32[np.ndarray, "N D"], dim: int, whiten: bool = False) -> Reduction:
    """PCA to `dim` dimensions; with `whiten`, each is divided by its standard deviation.

    Raises UserError if the embeddings vary in fewer directions.
    """
    mean = embeddings.mean(axis=0, dtype=np.float64)
    covariance = _scatter(_centred(embeddings, mean), embeddings.shape[1]) / len(embeddings)
    values, directions = _leading(covariance, dim, _rounding(embeddings))
    return Reduction(mean, directions / np.sqrt(values)[:, None] if whiten else directions)


def fit_whitening(
    embeddings: Float32[np.ndarray, "N D"], pairs: Int64[np.ndarray, "R 2"], dim: int
) -> Reduction:
    """Supervised whitening to `dim` dimensions. `pairs` are positions of two images of one object or class.

    Raises UserError if the differences of the pairs vary in fewer than D directions (at least D pairs are
    needed), or if the embeddings vary in fewer than `dim`.
    """
    first, second = pairs.T
    mean = embeddings[first].mean(axis=0, dtype=np.float64)
    differences = (
        embeddings[first[part]].astype(np.float64) - embeddings[second[part]] for part in _blocks(len(pairs))
    )
    within = _scatter(differences, embeddings.shape[1]) / len(pairs)
    values = np.linalg.eigvalsh(within)
    varied = int((values > _rounding(embeddings)).sum())
    if varied < len(values):
        raise UserError(
            f"Whitening is undefined: the differences of the {len(pairs):,} matching pairs vary in "
            f"{varied} of {len(values)} directions.",
            "Provide more matching pairs of different images (at least one per dimension), or use PCA.",
        )
    narrowing = np.linalg.inv(np.linalg.cholesky(within))
    spread = _scatter((block @ narrowing.T for block in _centred(embeddings, mean)), embeddings.shape[1])
    _, directions = _leading(spread, dim, len(spread) * np.finfo(np.float64).eps * float(np.trace(spread)))
    return Reduction(mean, _signed(directions @ narrowing))


def apply(reduction: Reduction, embeddings: Float32[np.ndarray, "N D"]) -> Float32[np.ndarray, "N d"]:
    """Unit vectors, computed in float64.

    Raises UserError if a row is reduced to zero, and ValueError if D differs from that of the fit.
    """
    if embeddings.shape[1] != len(reduction.mean):
        raise ValueError(
            f"the reduction has {len(reduction.mean)} input dimensions, the embeddings {embeddings.shape[1]}"
        )
    reduced = np.empty((len(embeddings), len(reduction.projection)), np.float32)
    blocks = zip(_blocks(len(embeddings)), _centred(embeddings, reduction.mean), strict=True)
    for part, block in blocks:
        projected = block @ reduction.projection.T
        norms = np.linalg.norm(projected, axis=1, keepdims=True)
        zero = norms[:, 0] <= np.finfo(np.float64).eps * np.linalg.norm(reduction.projection)
        if zero.any():
            raise UserError(
                f"The embedding in row {part.start + int(zero.argmax())} equals the mean of the training "
                "embeddings, so the reduction maps it to zero.",
                "The network collapsed: all images have nearly the same embedding. See the training history.",
            )
        reduced[part] = projected / norms
    return reduced


def learned_reduction(settings: Reduce, folder: Path, key: str) -> Reduction:
    """The reduction of the train embeddings in `folder`. key: of the settings in params.yaml.

    Raises UserError for a missing or damaged file, for whitening by pairs without a table of pairs, and as
    `fit_pca` and `fit_whitening` do.
    """
    train = read(folder / "train.arrow")
    if settings.whiten != "pairs":
        return fit_pca(train.embedding, settings.dim, settings.whiten == "pca")
    if not (folder / PAIRS).is_file():
        raise UserError(
            f"{folder} has no table of matching images ({PAIRS}).",
            f"Set {key}.whiten to none or pca for a data set without pairs.",
        )
    table = pq.read_table(folder / PAIRS, filters=[("split", "=", "train")])
    pairs = np.stack([table[side].to_numpy() for side in ("query", "positive")], axis=1)
    return fit_whitening(train.embedding, np.searchsorted(train.row_id, pairs), settings.dim)


def save(path: Path, reduction: Reduction) -> None:
    """Writes the arrays mean and projection as safetensors; equal reductions give equal bytes."""
    with atomic_file(path) as aside:
        arrays = {name: np.ascontiguousarray(array) for name, array in reduction._asdict().items()}
        aside.write_bytes(safetensors.numpy.save(arrays))


def _blocks(rows: int) -> list[slice]:
    return [slice(start, min(start + BLOCK, rows)) for start in range(0, rows, BLOCK)]


def _centred(embeddings: np.ndarray, mean: np.ndarray) -> Iterator[np.ndarray]:
    return (embeddings[part].astype(np.float64) - mean for part in _blocks(len(embeddings)))


def _scatter(blocks: Iterator[np.ndarray], dim: int) -> np.ndarray:
    total = np.zeros((dim, dim))
    for block in blocks:
        total += block.T @ block
    return (total + total.T) / 2


def _rounding(embeddings: np.ndarray) -> float:
    """The variance that float32 rounding alone causes in a direction; less counts as zero."""
    return float(
        np.finfo(np.float32).eps ** 2 * np.einsum("nd,nd->n", embeddings, embeddings).mean(dtype=np.float64)
    )


def _leading(matrix: np.ndarray, dim: int, zero: float) -> tuple[np.ndarray, np.ndarray]:
    """The `dim` largest eigenvalues, descending, and their unit eigenvectors as rows.

    Raises UserError if fewer eigenvalues exceed `zero`.
    """
    values, vectors = np.linalg.eigh(matrix)
    varied = int((values > zero).sum())
    if not 1 <= dim <= varied:
        raise UserError(
            f"The training embeddings vary in {varied} of their {len(values)} dimensions, "
            f"so they cannot be reduced to {dim}.",
            f"Set dim to a value from 1 to {varied}."
            if varied
            else "The network collapsed: all images have the same embedding. See the training history.",
        )
    return values[::-1][:dim], _signed(vectors.T[::-1][:dim])


def _signed(rows: np.ndarray) -> np.ndarray:
    """The sign of an eigenvector is arbitrary: here the largest entry of each row is positive."""
    largest = rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)]
    return rows * np.where(largest < 0, -1.0, 1.0)[:, None]
