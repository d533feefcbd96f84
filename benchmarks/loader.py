"""The training loader compared with the usual one: a folder of files, Pillow, tensors and normalisation per
sample. It must be at least twice as fast per core. The bound `batches` (below) must take at least
REQUIRED_SHARES of its time.

Both read the same JPEGs from the page cache, draw the same crops and return a normalised float32 batch. The
usual loader runs in this process: worker processes would add the transfer of float samples to its time.

Bounds are measured in the same rounds on one thread, for the same draws of the sampler:

    decoding    TurboJPEG on the same bytes in the same order, strict and at full size as in the loader, into
                memory that all pictures share; without shards, headers, random numbers and crops
    resizing    decoding, and the resizing kernel on a contiguous picture of the size of each crop, into its
                place in the batch; without the crop itself and mirrors
    batches     resizing, and normalisation of each batch into new memory

A share is the time of a bound divided by that of this loader: of its uint8 batches, which a training on a GPU
normalises there, or of its normalised batches. It compares the fastest rounds, because other processes on
the machine delay the parts differently. The last two lines are the shares that a loader with these pixels
could reach at most. New memory of float batches costs 45 to 130 us per photograph, as much as the arithmetic
of the normalisation or more, according to the huge pages that the system has.

The resizing kernel of pipeline/data/transforms.py was selected by these measurements for a 224-pixel crop of
a 500 x 375 photograph, whose decoding takes 660 us. torch's uint8 kernel: bilinear 95-180 us (a fifth of
Pillow's time), bicubic 1.15 times as long, both with more than 67 dB PSNR to Pillow. cv2 linear: 45-80 us,
but 35 dB when shrinking by 1.2 and 28 dB by 1.9, because it aliases. cv2 INTER_AREA: 350-630 us, 37-42 dB.
Bilinear compared with bicubic: 40-46 dB.
"""

import functools
import os
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from timing import Ratio, gemm_gflops, interleave, ratio, save

from unseen.data.decode import FORMATS, decode, decode_jpeg
from unseen.data.loader import TrainLoader, normalize
from unseen.data.sampler import PKSampler
from unseen.data.settings import Batch, Input
from unseen.data.shard_writer import ShardWriter
from unseen.data.shards import Shards
from unseen.data.transforms import SplitMix64, crop_for_training, random_crop, resize_into

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

REQUIRED = 2.0
REQUIRED_SHARES = {"photos, 500 x 375 to 224": 0.8, "thumbnails, 120 x 100 to 64": 0.65}  # batches / unseen
CASES = {  # width, height, images, input
    "photos, 500 x 375 to 224": (500, 375, 120, Input(size=224, resize=256)),
    "thumbnails, 120 x 100 to 64": (120, 100, 480, Input(size=64, resize=72, crop_scale=(0.5, 1.0))),
}
BATCH = Batch(classes=12, images_per_class=5)
ROUNDS = 7
USUAL, OURS, OURS_2, UINT8 = "Pillow, per sample", "unseen, 1 thread", "unseen, 2 threads", "unseen, uint8"
DECODING, RESIZING, BATCHES = "decoding", "resizing", "batches"
SHARES = (  # bound, loader or bound
    (DECODING, UINT8),
    (DECODING, OURS),
    (RESIZING, UINT8),
    (BATCHES, OURS),
    (DECODING, RESIZING),
    (DECODING, BATCHES),
)


def photograph(width: int, height: int, seed: int) -> np.ndarray:
    """uint8 (height, width, 3): noise with the spectrum of natural images, and textured shapes with hard
    edges. 53 KB as JPEG of 500 x 375."""
    generator = np.random.default_rng(seed)
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :])
    frequency[0, 0] = 1

    def noise(slope: float) -> np.ndarray:
        real, imaginary = generator.normal(size=frequency.shape), generator.normal(size=frequency.shape)
        spectrum = (real + 1j * imaginary) / frequency**slope
        spectrum[0, 0] = 0
        plane = np.fft.irfft2(spectrum, (height, width))
        return plane / plane.std()

    tint = generator.normal(1, 0.3, 3)
    picture = 128 + 40 * noise(1.5)[:, :, None] * tint
    picture = picture + 8 * noise(1.0)[:, :, None] * generator.normal(1, 0.5, 3)
    rows, columns = np.mgrid[:height, :width]
    for _ in range(6):
        middle, radius = generator.uniform(0, 1, 2) * (height, width), generator.uniform(0.05, 0.25) * height
        inside = np.hypot(rows - middle[0], (columns - middle[1]) * generator.uniform(0.5, 2)) < radius
        colour = generator.uniform(0, 255, 3)
        picture[inside] = colour + 25 * np.sin(columns[inside] * generator.uniform(0.1, 1))[:, None]
    return np.clip(picture, 0, 255).astype(np.uint8)


def make(directory: Path, width: int, height: int, images: int) -> tuple[list[Path], Shards]:
    """The same JPEGs (quality 90) as a folder of files and as shards."""
    (directory / "shards").mkdir()
    files = []
    labels = [image * BATCH.classes * 2 // images for image in range(images)]
    classes = [f"class-{label}" for label in range(BATCH.classes * 2)]
    with ShardWriter(directory / "shards", classes, 2**28) as writer:
        for image, label in enumerate(labels):
            file = directory / "files" / f"class-{label}" / f"{image}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(photograph(width, height, image)).save(file, quality=90)
            writer.add(file.read_bytes(), label, "train", file.name, width, height)
            files.append(file)
        writer.finish({"dataset": "benchmark"})
    return files, Shards(directory / "shards")


def usual_loader(files: list[Path], labels: np.ndarray, sampler: PKSampler, input: Input, steps: int) -> None:
    """The operations of torchvision's ImageFolder, RandomResizedCrop, RandomHorizontalFlip, ToTensor and
    Normalize, and of torch's default_collate."""
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in IMAGENET)
    for step in range(steps):
        draw = sampler.draw(step)
        samples, targets = [], []
        for position, key in zip(draw.positions.tolist(), draw.keys.tolist(), strict=True):
            numbers = SplitMix64(key)
            with open(files[position], "rb") as file:
                image = Image.open(file, formats=FORMATS).convert("RGB")
            left, top, width, height = random_crop(*image.size, numbers, input)
            image = image.crop((left, top, left + width, top + height)).resize(
                (input.size, input.size), Image.Resampling.BILINEAR
            )
            if numbers.uniform() < input.flip:
                image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
            samples.append(pixels.to(torch.float32).div(255).clone().sub_(mean).div_(std))
            targets.append(int(labels[position]))
        torch.stack(samples), torch.tensor(targets)


def our_loader(
    shards: Shards, sampler: PKSampler, input: Input, steps: int, threads: int, normalized: bool = True
) -> None:
    rows = np.arange(len(shards))
    for batch in TrainLoader(shards, rows, shards.labels, sampler, input, threads=threads).iterate(0, steps):
        if normalized:
            normalize(batch.images, *IMAGENET)


class Bounds:
    """The lower bounds of the module docstring, with everything but their work prepared."""

    def __init__(self, shards: Shards, sampler: PKSampler, input: Input, steps: int) -> None:
        draws = [sampler.draw(step) for step in range(steps)]
        rows = [row for draw in draws for row in draw.positions.tolist()]
        keys = [key for draw in draws for key in draw.keys.tolist()]
        self.encoded = [np.array(shards.image(row)) for row in rows]
        self.decoded = np.empty_like(decode(self.encoded[0]))  # of the one size of all pictures
        height, width = self.decoded.shape[:2]
        boxes = [random_crop(width, height, SplitMix64(key), input) for key in keys]
        octets = self.decoded.reshape(-1)
        self.crops = [octets[: w * h * 3].reshape(h, w, 3) for _, _, w, h in boxes]
        self.input, self.batch = input, sampler.batch.size

    def decoding(self) -> None:
        for encoded in self.encoded:
            decode_jpeg(encoded, buffer=self.decoded)

    def batches(self, normalized: bool = True) -> None:
        side = self.input.size
        for first in range(0, len(self.encoded), self.batch):
            planes = np.empty((self.batch, side, side, 3), np.uint8).transpose(0, 3, 1, 2)
            for place in range(self.batch):
                decode_jpeg(self.encoded[first + place], buffer=self.decoded)
                resize_into(self.crops[first + place], self.input.interpolation, planes[place])
            if normalized:
                normalize(torch.from_numpy(planes), *IMAGENET)


def pixel_difference(shards: Shards, input: Input) -> dict[str, float]:
    """The difference of this loader's crops to Pillow's crops of the same boxes, in grey levels of 255 and in
    decibels."""
    ours = np.empty((3, input.size, input.size), np.uint8)
    differences = []
    for row in range(48):
        picture = decode(shards.image(row))
        left, top, width, height = random_crop(picture.shape[1], picture.shape[0], SplitMix64(row), input)
        crop_for_training(picture, row, input.model_copy(update={"flip": 0.0}), ours)
        crop = Image.fromarray(picture[top : top + height, left : left + width])
        resized = crop.resize((input.size, input.size), Image.Resampling.BILINEAR)
        differences.append(ours.astype(float) - np.asarray(resized).transpose(2, 0, 1))
    error = np.stack(differences)
    mean_square = max(float((error**2).mean()), 1e-12)
    return {
        "mean_absolute": float(np.abs(error).mean()),
        "largest": float(np.abs(error).max()),
        "psnr_db": float(10 * np.log10(255**2 / mean_square)),
    }


def main() -> int:
    torch.set_num_threads(1)
    results: dict[str, object] = {"control_gflops": gemm_gflops()}
    slowest, ratios, low = np.inf, {}, {}
    print(f"{'us of CPU per image':32}{USUAL:>22}{OURS:>20}{OURS_2:>20}{'ratio':>9}{'2 threads':>11}")
    for case, (width, height, images, input) in CASES.items():
        with tempfile.TemporaryDirectory() as temporary:
            files, shards = make(Path(temporary), width, height, images)
            sampler = PKSampler(shards.labels, BATCH, seed=0)
            steps = images // BATCH.size
            bounds = Bounds(shards, sampler, input, steps)
            seconds = interleave(
                {
                    USUAL: functools.partial(usual_loader, files, shards.labels, sampler, input, steps),
                    OURS: functools.partial(our_loader, shards, sampler, input, steps, 1),
                    OURS_2: functools.partial(our_loader, shards, sampler, input, steps, 2),
                    UINT8: functools.partial(our_loader, shards, sampler, input, steps, 1, False),
                    DECODING: bounds.decoding,
                    RESIZING: functools.partial(bounds.batches, normalized=False),
                    BATCHES: bounds.batches,
                },
                ROUNDS,
            )
            difference = pixel_difference(shards, input)
        micros = {
            name: statistics.median(times) / (steps * BATCH.size) * 1e6 for name, times in seconds.items()
        }
        ratio_1, ratio_2 = ratio(seconds, USUAL, OURS), ratio(seconds, USUAL, OURS_2)
        slowest = min(slowest, ratio_1)
        ratios[case] = Ratio(ratio_1, at_least=REQUIRED)
        times = f"{micros[USUAL]:22.0f}{micros[OURS]:20.0f}{micros[OURS_2]:20.0f}"
        print(f"{case:32}{times}{ratio_1:8.2f}x{ratio_2:10.2f}x")
        shares = {f"{bound} / {whole}": min(seconds[bound]) / min(seconds[whole]) for bound, whole in SHARES}
        for name, share in shares.items():
            least = REQUIRED_SHARES[case] if name == f"{BATCHES} / {OURS}" else None
            ratios[f"{case}: {name}"] = Ratio(share, at_least=least)
            if least is not None and share < least:
                low[case] = share
            print(f"    {name}: {share:.3f}")
        print(
            "    pixels against Pillow: mean {mean_absolute:.4f}, largest {largest:.0f} grey level(s), "
            "{psnr_db:.0f} dB".format(**difference)
        )
        results[case] = {
            "microseconds_per_image": micros,
            "ratio": ratio_1,
            "ratio_2_threads": ratio_2,
            "shares": shares,
            "pixel_difference": difference,
        }
    results["required_ratio"] = REQUIRED
    save("loader", results, ratios)
    for case, share in low.items():
        print(
            f"{case}: decoding, resizing and normalising alone take {share:.2f} of the time of the loader; "
            f"at least {REQUIRED_SHARES[case]} is required",
            file=sys.stderr,
        )
    if slowest < REQUIRED:
        print(
            f"the loader is {slowest:.2f} times as fast per core; at least {REQUIRED} is required",
            file=sys.stderr,
        )
    return int(slowest < REQUIRED or bool(low))


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    sys.exit(main())
