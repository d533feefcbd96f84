"""Losses compared with pytorch-metric-learning: CPU time of forward and backward on one thread, and the
memory of a call.

Both get unit vectors as a leaf, of 128 dimensions unless a name states others (D); pytorch-metric-learning
normalises them again by default. A memory contains 11,000 or 60,000 rows. In a "hot" memory about half of the
negatives are above the margin, otherwise none. pytorch-metric-learning has no SNCA, so that only its time is
listed. REQUIRED and PEAK are the limits of ratios and memory; a run that exceeds one exits with 1. Runs on
Linux only, because the memory peak must be reset.
"""

import ctypes
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.losses import (
    ContrastiveLoss,
    MultiSimilarityLoss,
    NormalizedSoftmaxLoss,
    ProxyAnchorLoss,
    ProxyNCALoss,
    TripletMarginLoss,
)
from pytorch_metric_learning.miners import MultiSimilarityMiner, TripletMarginMiner
from pytorch_metric_learning.reducers import SumReducer
from timing import Ratio, gemm_gflops, interleave, ratio, save
from torch import Tensor
from torch.nn.functional import normalize

from unseen.losses.contrastive import Contrastive
from unseen.losses.euclidean_contrastive import EuclideanContrastive
from unseen.losses.multi_similarity import MultiSimilarity
from unseen.losses.normalized_softmax import NormalizedSoftmax
from unseen.losses.proxy_anchor import ProxyAnchor
from unseen.losses.proxy_nca import ProxyNca
from unseen.losses.snca import Snca
from unseen.losses.triplet import Triplet

DIM, WIDE, SMALL, LARGE, CLASSES = 128, 512, 11_000, 60_000, 11_318
BATCHES = {80: 4, 180: 5, 1024: 4}  # images -> images per class
REQUIRED = {
    "multi-similarity, B 180": 5.0,
    "proxy-anchor, C 100, B 180": 2.5,
    "proxy-anchor, C 11318, B 180": 4.0,
    "contrastive, memory 60000, B 180": 4.0,
    **{f"multi-similarity, D {WIDE}, B {size}": 2.0 for size in BATCHES},
}
NEVER_SLOWER = 1.0
PEAK = 120.0  # MiB, of any loss with 1024 images and 60,000 references
OURS, PEER = "unseen", "pytorch-metric-learning"
Turn = Callable[[], object]
Loss = Callable[[Tensor], Tensor]
# name, function that makes the candidates, rounds, calls per round
Case = tuple[str, Callable[[], dict[str, Turn]], int, int]


def batch(size: int, dim: int = DIM) -> tuple[Tensor, Tensor]:
    """Vectors and labels of overlapping classes, so that mining keeps only a part of the pairs."""
    labels = torch.arange(size // BATCHES[size]).repeat_interleave(BATCHES[size])
    centres = torch.randn(len(labels.unique()), dim)
    return normalize(centres[labels] + 2.5 * torch.randn(size, dim), dim=1), labels


def step(loss: Loss, points: Tensor, *parameters: Tensor) -> Turn:
    leaf = points.clone().requires_grad_()

    def turn() -> None:
        for tensor in (leaf, *parameters):
            tensor.grad = None
        loss(leaf).backward()

    return turn


def repeated(turn: Turn, times: int) -> Turn:
    """Several calls in one measurement, if one is too short for the resolution of the clock."""
    return lambda: [turn() for _ in range(times)]


def both(points: Tensor, ours: Loss, theirs: Loss) -> dict[str, Turn]:
    return {OURS: step(ours, points), PEER: step(theirs, points)}


def multi_similarity(size: int, dim: int = DIM) -> dict[str, Turn]:
    points, labels = batch(size, dim)
    ours, miner = MultiSimilarity(2.0, 40.0, 0.5, 0.1), MultiSimilarityMiner(0.1)
    theirs = MultiSimilarityLoss(2, 40, 0.5)
    return both(points, lambda x: ours(x, labels), lambda x: theirs(x, labels, miner(x, labels)))


def euclidean_contrastive(size: int) -> dict[str, Turn]:
    points, labels = batch(size)
    ours, theirs = EuclideanContrastive(0.2652, 1.3), ContrastiveLoss(0.2652, 1.3)
    return both(points, lambda x: ours(x, labels), lambda x: theirs(x, labels))


def triplet(size: int, mining: str) -> dict[str, Turn]:
    points, labels = batch(size)
    ours, theirs, miner = Triplet(0.1, mining), TripletMarginLoss(0.1), TripletMarginMiner(0.1, mining)
    return both(
        points,
        lambda x: ours(x, labels),
        lambda x: theirs(x, labels, miner(x, labels) if mining == "semihard" else None),
    )


def proxies(size: int, classes: int, name: str) -> dict[str, Turn]:
    points, _ = batch(size)
    labels = torch.randint(0, classes, (size // BATCHES[size],)).repeat_interleave(BATCHES[size])
    pairs = {
        "proxy-anchor": lambda: (
            ProxyAnchor(classes, DIM, 32.0, 0.1),
            ProxyAnchorLoss(classes, DIM, margin=0.1, alpha=32),
        ),
        "proxy-nca": lambda: (
            ProxyNca(classes, DIM, 18.0, "normal_over_8"),
            ProxyNCALoss(classes, DIM, softmax_scale=9),
        ),
        "normalised softmax": lambda: (
            NormalizedSoftmax(classes, DIM, 0.05),
            NormalizedSoftmaxLoss(classes, DIM, temperature=0.05),
        ),
    }
    ours, theirs = pairs[name]()
    return {
        OURS: step(lambda x: ours(x, labels), points, *ours.parameters()),
        PEER: step(lambda x: theirs(x, labels), points, *theirs.parameters()),
    }


def memory(size: int, rows: int, hot: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Unit vectors and labels of a batch and of a memory, in random directions or (hot) around one direction
    with cosines of about 0.5."""
    pole = torch.zeros(DIM)
    pole[0] = 1.0 if hot else 0.0
    points, references = (
        normalize(normalize(torch.randn(count, DIM), dim=1) + pole, dim=1) for count in (size, rows)
    )
    labels = torch.arange(size // BATCHES[size]).repeat_interleave(BATCHES[size])
    return points, labels, references, torch.randint(0, CLASSES, (rows,))


def contrastive(size: int, rows: int, hot: bool) -> dict[str, Turn]:
    points, labels, *references = memory(size, rows, hot)
    ours = Contrastive(0.5)
    theirs = ContrastiveLoss(1, 0.5, distance=CosineSimilarity(), reducer=SumReducer())
    keywords = dict(zip(("ref_emb", "ref_labels"), references, strict=True))
    return both(
        points, lambda x: ours(x, labels, *references), lambda x: theirs(x, labels, **keywords) / size
    )


def ours_alone(size: int, name: str) -> dict[str, Turn]:
    """Other losses with a hot memory, of which only the memory peak is of interest."""
    points, labels, *references = memory(size, LARGE, hot=True)
    losses = {
        "multi-similarity": lambda: MultiSimilarity(2.0, 40.0, 0.5, 0.1),
        "euclidean contrastive": lambda: EuclideanContrastive(0.2652, 1.0),
        "triplet": lambda: Triplet(0.1, "all"),
    }
    if name in losses:
        loss = losses[name]()
        return {OURS: step(lambda x: loss(x, labels, *references), points)}
    snca, samples = Snca(LARGE, DIM, 0.05, 0.5), torch.arange(size)
    snca.memory.copy_(references[0])
    snca.labels.copy_(references[1])
    return {OURS: step(lambda x: snca(x, labels, samples), points)}


def peak(turn: Turn) -> float:
    """The peak of resident memory during the call, in MiB above that before the call."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak to the present resident memory
    before = _status("VmRSS")
    turn()
    return (_status("VmHWM") - before) / 1024


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1])


def cases() -> list[Case]:
    cases: list[Case] = []
    for size in BATCHES:
        rounds_and_calls = (9, 10) if size < 1024 else (5, 1)
        cases.append((f"multi-similarity, B {size}", partial(multi_similarity, size), *rounds_and_calls))
        name = f"multi-similarity, D {WIDE}, B {size}"
        cases.append((name, partial(multi_similarity, size, WIDE), *rounds_and_calls))
        name = f"euclidean contrastive, B {size}"
        cases.append((name, partial(euclidean_contrastive, size), *rounds_and_calls))
        for mining in ("all", "semihard"):
            rounds = 7 if size < 1024 else 2
            cases.append((f"triplet {mining}, B {size}", partial(triplet, size, mining), rounds, 1))
    for loss in ("proxy-anchor", "proxy-nca", "normalised softmax"):
        for classes in (100, CLASSES):
            for size in BATCHES:
                rounds_and_calls = (9, 10) if classes == 100 else (7 if size < 1024 else 3, 1)
                name = f"{loss}, C {classes}, B {size}"
                cases.append((name, partial(proxies, size, classes, loss), *rounds_and_calls))
    for count in (SMALL, LARGE):
        for size in BATCHES:
            for hot in (False, True):
                name = f"contrastive, memory {count}{', hot' * hot}, B {size}"
                rounds = 5 if size < 1024 else 2
                cases.append((name, partial(contrastive, size, count, hot), rounds, 1))
    for loss in ("multi-similarity", "euclidean contrastive", "triplet", "SNCA"):
        cases.append((f"{loss}, memory {LARGE}, hot, B 1024", partial(ours_alone, 1024, loss), 1, 1))
    return cases


def main() -> int:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    results: dict[str, object] = {"gemm_gflops": round(gemm_gflops(), 1)}
    exceeded, ratios = [], {}
    print(f"{'':48} {'ours ms':>9} {'other ms':>9} {'ratio':>6} {'ours MiB':>9} {'other MiB':>9}")
    for name, make, rounds, calls in cases():
        candidates = make()
        seconds = interleave({key: repeated(turn, calls) for key, turn in candidates.items()}, rounds)
        times = {key: 1e3 * statistics.median(each) / calls for key, each in seconds.items()}
        peaks = {key: peak(turn) for key, turn in candidates.items()}
        row: dict[str, object] = {"ms": round(times[OURS], 3), "peak_mib": round(peaks[OURS], 1)}
        line = f"{name:48} {times[OURS]:9.2f}"
        if PEER in candidates:
            faster, required = ratio(seconds, PEER, OURS), REQUIRED.get(name, NEVER_SLOWER)
            row |= {
                "other_ms": round(times[PEER], 3),
                "other_peak_mib": round(peaks[PEER], 1),
                "ratio": round(faster, 2),
                "required": required,
            }
            ratios[name] = Ratio(faster, at_least=required)
            line += f" {times[PEER]:9.2f} {faster:5.1f}x {peaks[OURS]:9.1f} {peaks[PEER]:9.1f}" + (
                f"  (required {required}x)" if name in REQUIRED else ""
            )
            if faster < required:
                exceeded.append(f"{name}: {faster:.2f}x of {required}x")
        else:
            line += f" {'-':>9} {'-':>6} {peaks[OURS]:9.1f} {'-':>9}"
        if f"memory {LARGE}" in name and peaks[OURS] > PEAK:
            exceeded.append(f"{name}: peak {peaks[OURS]:.0f} MiB of {PEAK:.0f}")
        results[name] = row
        print(line, flush=True)
    save("losses", results, ratios)
    if exceeded:
        print(f"limits exceeded: {'; '.join(exceeded)}")
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
