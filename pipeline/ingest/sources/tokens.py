"""The token corpus of the synthetic study (GSP, ICCV 2023, section 5.1; released code
tensorflow/framework/datasets/experimental.py): does a pooling ignore what all classes share, when nothing but
pooling is at stake?

A token stands for a thing in a picture. Each of 16 classes has four tokens of its own, four more are shared
by all: 68 tokens. A sample is a bag of 50 tokens, drawn with replacement: n of the shared ones, the others of
its class,

    n = round((beta + 0.1 z) 50), z ~ N(0, 1), kept within 1 ... 49;   beta = 0.5 (the text; the released code
    has 0.7 and bags of 10)

Stored as a grey picture one pixel high, one pixel per token, whose value is the number of the token: the form
in which shards, loader and sampler know rows, lossless, and readable by eye. After decoding R = G = B =
token; a model looks them up in its table, and no transform may change pixels or their values (no resizing, no
colour, no normalisation; a flip or a crop does no harm but the size of the bag). Token c * 4 + i is the i-th
of class c, the shared ones come last. A bag has no order: its pixels are shuffled.

Classes of train and test are the same 16, as in the study, which asks for unseen samples of seen classes:
they are named by their split. Of each, further bags are held out for validation; to hold out classes would be
to judge vectors of tokens that no gradient has moved.
"""

from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from pipeline.config.dataset import TokensSource
from pipeline.ingest.collection import Collection, Picture
from pipeline.runtime.errors import UserError

VALUES = 256  # of a grey pixel
PARTS = ("train", "test", "validation")


def collection(source: TokensSource, scratch: Path | None = None) -> Collection:
    """The bags of the corpus. Raises UserError when there are more tokens than values of a pixel."""
    tokens = source.classes * source.class_tokens + source.shared_tokens
    if tokens > VALUES:
        raise UserError(
            f"The token corpus has {tokens} tokens; a pixel holds {VALUES} values.",
            "Lower classes, class_tokens or shared_tokens.",
        )
    counts = {
        "train": source.train_per_class,
        "validation": source.validation_per_class,
        "test": source.test_per_class,
    }
    pictures = [
        _named(part, label, number)
        for part in PARTS
        for label in range(source.classes)
        for number in range(counts[part])
    ]
    return Collection("the token corpus", pictures, Bags(source), {"tokens": tokens, "unseen_classes": False})


def _named(part: str, label: int, number: int) -> Picture:
    split, group = ("test", None) if part == "test" else ("train", part)
    return Picture(
        f"{part}/class{label:03d}/{number:05d}.png", f"{split}/class{label:03d}", split, group=group
    )


class Bags:
    """Draws the bag of a given name: each from its own random numbers, so in any order and any process."""

    def __init__(self, source: TokensSource) -> None:
        self.source = source

    def __call__(self, name: str) -> UInt8[np.ndarray, "1 bag"]:
        part, label, number = name.removesuffix(".png").split("/")
        seed = np.random.SeedSequence([self.source.seed, PARTS.index(part), int(label[5:]), int(number)])
        return bag(self.source, int(label[5:]), np.random.Generator(np.random.PCG64(seed)))[None]


def bag(source: TokensSource, label: int, generator: np.random.Generator) -> UInt8[np.ndarray, " bag"]:
    """The tokens of one sample of a class."""
    share = source.background + source.deviation * generator.standard_normal()
    background = int(np.clip(np.rint(share * source.bag), 1, source.bag - 1))
    shared = generator.integers(source.shared_tokens, size=background) + source.classes * source.class_tokens
    own = generator.integers(source.class_tokens, size=source.bag - background) + label * source.class_tokens
    return generator.permutation(np.concatenate([own, shared])).astype(np.uint8)
