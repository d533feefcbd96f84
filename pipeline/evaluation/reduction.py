"""Linear reduction of embeddings to d dimensions, learned on the training set, then unit length: PCA, PCA whitening, supervised whitening.

    y = P (x - m),   stored y / |y|

With X the training embeddings, C = (1 / N) sum_i (x_i - m)(x_i - m)^T = E diag(l) E^T, l descending, E_d its first d columns:

    PCA                  m = mean of X               P = E_d^T
    PCA whitening        m = mean of X               P = diag(l_1 .. l_d)^(-1/2) E_d^T
    supervised whitening m = mean of the x_a         S = (1 / |pairs|) sum over pairs (a, b) of (x_a - x_b)(x_a - x_b)^T = L L^T,
                                                     C' = sum_i z_i z_i^T = F diag(k) F^T, z_i = L^-1 (x_i - m),   P = F_d^T L^-1

(Jegou and Chum, Negative evidences and co-occurences in image retrieval, sec. 3; Mikolajczyk and Matas, Improving descriptors for fast tree
matching; released code cnnimageretrieval-pytorch, utils/whiten.py: m of the supervised form is the mean of the pairs' first members, as there.)
The mean and covariance are summed in float64, block by block: memory is that of D x D and one block.

Deviations from the released code: the norm gets no 1e-6 added; a direction without variance raises instead of being divided by nearly zero; a
singular S raises instead of being made regular; each row of P has its largest entry positive, so that the same data give the same file.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, Int64
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from pipeline.runtime.errors import UserError
from pipeline.runtime.files import atomic_file

BLOCK = 8192  # rows in float64 at a time


class Reduction(NamedTuple):
    """x -> P (x - m)."""

    mean: Float64[np.ndarray, "D"]
    projection: Float64[np.ndarray, "d D"]


def fit_pca(embeddings: Float32[np.ndarray, "N D"], dim: int, whiten: bool = False) -> Reduction:
    """PCA to `dim` dimensions, each divided by its standard deviation where `whiten`.

    Raises UserError where the embeddings do not vary in that many directions.
    """
    mean = embeddings.mean(axis=0, dtype=np.float64)
    covariance = _scatter(_centred(embeddings, mean), embeddings.shape[1]) / len(embeddings)
    values, directions = _leading(covariance, dim, _rounding(embeddings))
    return Reduction(mean, directions / np.sqrt(values)[:, None] if whiten else directions)


def fit_whitening(embeddings: Float32[np.ndarray, "N D"], pairs: Int64[np.ndarray, "R 2"], dim: int) -> Reduction:
    """Supervised whitening to `dim` dimensions. `pairs` are positions of matching rows: two images of the same object, or of one class.

    Raises UserError where the differences of the pairs do not vary in all D directions (there must be at least D pairs), or the embeddings not
    in `dim`.
    """
    first, second = pairs.T
    mean = embeddings[first].mean(axis=0, dtype=np.float64)
    differences = (embeddings[first[part]].astype(np.float64) - embeddings[second[part]] for part in _blocks(len(pairs)))
    within = _scatter(differences, embeddings.shape[1]) / len(pairs)
    values = np.linalg.eigvalsh(within)
    varied = int((values > _rounding(embeddings)).sum())
    if varied < len(values):
        raise UserError(
            f"The differences of the {len(pairs):,} matching pairs vary in {varied} of {len(values)} directions: whitening is not defined.",
            "Give more matching pairs (at least as many as dimensions, no duplicates of one image), or reduce by PCA.",
        )
    narrowing = np.linalg.inv(np.linalg.cholesky(within))
    spread = _scatter((block @ narrowing.T for block in _centred(embeddings, mean)), embeddings.shape[1])
    _, directions = _leading(spread, dim, len(spread) * np.finfo(np.float64).eps * float(np.trace(spread)))
    return Reduction(mean, _signed(directions @ narrowing))


def apply(reduction: Reduction, embeddings: Float32[np.ndarray, "N D"]) -> Float32[np.ndarray, "N d"]:
    """Unit vectors, computed in float64. Raises UserError where a row is reduced to zero, ValueError where D is not that of the fit."""
    if embeddings.shape[1] != len(reduction.mean):
        raise ValueError(f"the reduction was learned on {len(reduction.mean)} dimensions, the embeddings have {embeddings.shape[1]}")
    reduced = np.empty((len(embeddings), len(reduction.projection)), np.float32)
    for part, block in zip(_blocks(len(embeddings)), _centred(embeddings, reduction.mean), strict=True):
        projected = block @ reduction.projection.T
        norms = np.linalg.norm(projected, axis=1, keepdims=True)
        zero = norms[:, 0] <= np.finfo(np.float64).eps * np.linalg.norm(reduction.projection)
        if zero.any():
            raise UserError(
                f"The embedding in row {part.start + int(zero.argmax())} is reduced to zero: it equals the mean of the training embeddings.",
                "The network collapsed: all images get nearly the same embedding. Look at the training history.",
            )
        reduced[part] = projected / norms
    return reduced


def save(path: Path, reduction: Reduction) -> None:
    """A safetensors file. Same reduction, same bytes."""
    with atomic_file(path) as aside:
        save_file({name: np.ascontiguousarray(array) for name, array in reduction._asdict().items()}, aside)


def load(path: Path) -> Reduction:
    """Raises UserError where the file is missing, damaged or holds something else."""
    remedy = "Run `dvc repro` to learn the reduction anew."
    try:
        arrays = load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path} cannot be read: {error}.", remedy) from error
    shapes = {name: (array.dtype.name, array.shape) for name, array in arrays.items()}
    form = sorted(arrays) == sorted(Reduction._fields) and all(array.dtype == np.float64 and np.isfinite(array).all() for array in arrays.values())
    if not form or arrays["projection"].ndim != 2 or arrays["mean"].shape != arrays["projection"].shape[1:]:
        raise UserError(f"{path} is no reduction, it holds {shapes}; expected finite float64 mean (D,) and projection (d, D).", remedy)
    return Reduction(**arrays)


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
    """Variance in a direction that rows have by being float32 alone: none of it can be told from zero."""
    return float(np.finfo(np.float32).eps ** 2 * np.einsum("nd,nd->n", embeddings, embeddings).mean(dtype=np.float64))


def _leading(matrix: np.ndarray, dim: int, nothing: float) -> tuple[np.ndarray, np.ndarray]:
    """The `dim` largest eigenvalues, descending, and their unit eigenvectors as rows. All must exceed `nothing`."""
    values, vectors = np.linalg.eigh(matrix)
    varied = int((values > nothing).sum())
    if not 1 <= dim <= varied:
        raise UserError(
            f"A reduction to {dim} dimensions was asked for; the training embeddings vary in {varied} of their {len(values)}.",
            f"Ask for 1 to {varied} dimensions." if varied else "The network collapsed: all images get the same embedding.",
        )
    return values[::-1][:dim], _signed(vectors.T[::-1][:dim])


def _signed(rows: np.ndarray) -> np.ndarray:
    """Eigenvectors have no sign of their own: the largest entry of each row is made positive."""
    largest = rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)]
    return rows * np.where(largest < 0, -1.0, 1.0)[:, None]
