"""The token corpus of the synthetic study (GSP, ICCV 2023, section 5.1; released code
tensorflow/framework/datasets/experimental.py). It tests whether a pooling ignores what all classes share,
without an influence of the backbone.

A token represents an object in a picture. Each of 16 classes has four tokens that only this class uses, and
four more are shared by all classes: 68 tokens. A sample is a bag of 50 tokens, drawn with replacement: n
shared tokens, the others from its class,

    n = round((beta + 0.1 z) 50), z ~ N(0, 1), limited to 1 ... 49;   beta = 0.5

(the values of the text; the released code has beta = 0.7 and bags of 10).

A bag is stored as a grey picture one pixel high, with one pixel per token, whose value is the number of the
token. Shards, loader and sampler handle it like any picture, and it is lossless. After decoding R = G = B =
token; a model uses them as indices of its embedding table, and no transform may change pixels or their values
(no resizing, no colour, no normalisation; a flip changes nothing, a crop changes only the size of the bag).
Token c * 4 + i is the i-th token of class c; the shared tokens are the last. A bag has no order: its pixels
are shuffled.

The 16 classes of train and test are the same, as in the study, which evaluates on unseen samples of seen
classes. Class names begin with the split. Further bags of each class are held out for validation. Held-out
classes would be no use for validation, because their token vectors receive no gradient.
"""

from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from unseen.data.ingest.collection import Collection, Picture
from unseen.data.ingest.settings import TokensSource
from unseen.runtime.errors import UserError

VALUES = 256  # of a grey pixel
PARTS = ("train", "test", "validation")


def collection(source: TokensSource, scratch: Path | None = None) -> Collection:
    """The bags of the corpus. Raises UserError if there are more tokens than values of a pixel."""
    tokens = source.classes * source.class_tokens + source.shared_tokens
    if tokens > VALUES:
        raise UserError(
            f"The token corpus has {tokens} tokens; a pixel has {VALUES} values.",
            "Lower classes, class_tokens or shared_tokens.",
        )
    counts = {
        "train": source.train_per_class,
        "validation": source.validation_per_class,
        "test": source.test_per_class,
    }
    pictures = [
        _picture(part, label, number)
        for part in PARTS
        for label in range(source.classes)
        for number in range(counts[part])
    ]
    return Collection("the token corpus", pictures, Bags(source), {"tokens": tokens, "unseen_classes": False})


def _picture(part: str, label: int, number: int) -> Picture:
    split, group = ("test", None) if part == "test" else ("train", part)
    source = f"{part}/class{label:03d}/{number:05d}.png"
    return Picture(source, f"{split}/class{label:03d}", split, group=group)


class Bags:
    """Draws the bag of a given name. Each bag has its own random generator, so the result does not depend on
    the order or the process."""

    def __init__(self, source: TokensSource) -> None:
        self.source = source

    def __call__(self, name: str) -> UInt8[np.ndarray, "1 bag"]:
        part, label, number = name.removesuffix(".png").split("/")
        seed = np.random.SeedSequence([self.source.seed, PARTS.index(part), int(label[5:]), int(number)])
        return bag(self.source, int(label[5:]), np.random.Generator(np.random.PCG64(seed)))[None]


def bag(source: TokensSource, label: int, generator: np.random.Generator) -> UInt8[np.ndarray, " bag"]:
    """The tokens of one sample of a class."""
    share = source.background + source.deviation * generator.standard_normal()
    count = int(np.clip(np.rint(share * source.bag), 1, source.bag - 1))  # of shared tokens
    shared = generator.integers(source.shared_tokens, size=count) + source.classes * source.class_tokens
    of_class = generator.integers(source.class_tokens, size=source.bag - count) + label * source.class_tokens
    return generator.permutation(np.concatenate([of_class, shared])).astype(np.uint8)
