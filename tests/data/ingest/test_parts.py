"""The built-in set: its classes, its files, the drawing, and a difficulty between trivial and impossible."""

import hashlib
import io
from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from unseen.data.decode import decode
from unseen.data.ingest.ingest import ingest
from unseen.data.ingest.settings import IngestSettings, PartsSource
from unseen.data.ingest.sources import creature, parts
from unseen.data.ingest.sources.creature import Look
from unseen.data.shards import Shards
from unseen.runtime.errors import UserError

KNOWN = Path(__file__).with_name("built_in_images.png")
SMALL = PartsSource(train_classes=4, test_classes=4, images_per_class=8)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    output = tmp_path_factory.mktemp("parts") / "parts"
    ingest(SMALL, IngestSettings(), output, "parts", processes=1)
    return Shards(output, verify=True)


class TestClasses:
    @pytest.mark.parametrize(
        "source",
        [
            *(PartsSource(), PartsSource(seed=5), PartsSource(train_classes=300)),
            *(SMALL, PartsSource(train_classes=2, test_classes=2)),
        ],
    )
    def test_classes_are_new_combinations_of_train_values(self, source: PartsSource) -> None:
        looks = parts.classes(source)
        assert len(set(looks)) == len(looks) == source.train_classes + source.test_classes
        train, test = looks[: source.train_classes], looks[source.train_classes :]
        for name in Look._fields:
            assert {getattr(look, name) for look in test} <= {getattr(look, name) for look in train}

    def test_default_train_classes_use_every_value(self) -> None:
        train = parts.classes(PartsSource())[:64]
        for name, values in parts.ATTRIBUTES.items():
            missing = set(values) - {getattr(look, name) for look in train}
            assert not missing, name

    def test_members_of_a_family_differ_in_one_attribute(self) -> None:
        for split in (slice(0, 64), slice(64, 128)):
            looks = parts.classes(PartsSource())[split]
            for member in range(len(looks)):
                first = looks[member - member % parts.FAMILY]
                different = sum(a != b for a, b in zip(first, looks[member], strict=True))
                assert different == (0 if member % parts.FAMILY == 0 else 1)

    def test_palettes_occur_in_both_orders(self) -> None:
        palettes = {tuple(palette.split("-")) for palette in parts.ATTRIBUTES["palette"]}
        assert len(palettes) == 18
        assert {(b, a) for a, b in palettes} == palettes

    def test_classes_depend_on_the_seed(self) -> None:
        assert parts.classes(PartsSource()) == parts.classes(PartsSource())
        assert parts.classes(PartsSource()) != parts.classes(PartsSource(seed=1))

    def test_refuses_more_classes_than_combinations(self) -> None:
        with pytest.raises(
            UserError, match=r"(?s)has 63 more classes of these attributes; required: 64.*Lower"
        ):
            parts.classes(PartsSource(train_classes=2, test_classes=64))


class TestFiles:
    @pytest.mark.slow
    def test_writes_names_counts_and_facts(self, shards: Shards) -> None:
        assert shards.sources[0] == "train/c000/0000.jpg"
        assert shards.sources[-1] == "test/c007/0007.jpg"
        assert shards.class_names == [f"c{number:03d}" for number in range(8)]
        assert shards.manifest["counts"] == {
            "train": {"images": 32, "classes": 4},
            "test": {"images": 32, "classes": 4},
        }
        assert set(shards.manifest["classes"]["c003"]) == set(Look._fields)
        assert shards.manifest["duplicates"]["images"] == 0

    def test_sides_vary_within_the_range(self, shards: Shards) -> None:
        assert shards.sizes.min() >= SMALL.size[0]
        assert shards.sizes.max() <= SMALL.size[1]
        assert len(np.unique(shards.sizes, axis=0)) > 40
        assert (shards.sizes[:, 0] != shards.sizes[:, 1]).mean() > 0.9

    @pytest.mark.slow
    def test_some_files_are_grey_and_some_are_rotated(self, shards: Shards) -> None:
        assert shards.manifest["ingest"]["formats"] == {"JPEG L": 1, "JPEG RGB": 63}
        assert shards.manifest["ingest"]["upright"] == 1
        modes: Counter[str] = Counter()
        orientations: Counter[int] = Counter()
        read = parts.collection(source := PartsSource()).read
        for position in range(128 * 16):
            is_grey = position % parts.GREY_EVERY == parts.GREY_EVERY // 2
            is_turned = position % parts.TURNED_EVERY == parts.TURNED_EVERY // 4
            if is_grey or is_turned:
                label, image = divmod(position, source.images_per_class)
                file = Image.open(io.BytesIO(read(f"any/{parts.class_name(label)}/{image:04d}.jpg")))
                modes[file.mode] += 1
                orientations[file.getexif().get(0x0112, 1)] += 1
        assert modes["L"] == 34
        assert set(orientations) == {1, 3, 6, 8}
        assert sum(orientations.values()) - orientations[1] == 21

    def test_a_rotated_file_decodes_to_the_upright_image(self) -> None:
        looks = parts.classes(SMALL)
        position = parts.TURNED_EVERY // 4
        label, image = divmod(position, SMALL.images_per_class)
        file = parts.photograph(SMALL, looks, label, image)
        drawn = parts.draw(parts._random(SMALL.seed, parts._IMAGE, label, image), SMALL, looks[label])
        assert Image.open(io.BytesIO(file)).getexif()[0x0112] in (3, 6, 8)
        upright = decode(np.frombuffer(file, np.uint8))
        assert upright.shape == drawn.shape
        assert np.abs(upright.astype(int) - drawn).mean() < 8

    def test_draws_the_same_image_again(self, shards: Shards) -> None:
        read = parts.collection(SMALL).read
        for row in (63, 5, 40):
            assert read(shards.sources[row]) == shards.image(row).tobytes()
        read_other_seed = parts.collection(SMALL.model_copy(update={"seed": 1})).read
        assert read_other_seed(shards.sources[5]) != shards.image(5).tobytes()

    def test_images_differ(self, shards: Shards) -> None:
        digests = {hashlib.sha256(shards.image(row).tobytes()).digest() for row in range(len(shards))}
        assert len(digests) == len(shards)


class TestDrawing:
    @pytest.mark.parametrize("name", ["outline", "markings", "limbs", "pairs", "tail", "antennae"])
    def test_every_value_of_an_attribute_is_visible(self, name: str) -> None:
        """Two creatures in the same pose, 40 pixels long, that differ in one attribute: at least 1.5 percent
        of the creature's pixels differ."""
        base = Look("oval", "bands", "rust-cream", "legs", 2, "bare", "none")
        sprites = []
        for value in parts.ATTRIBUTES[name]:
            look = base._replace(**{name: value})
            swing = np.zeros((2, look.pairs))
            pose = creature.Pose((200.0, 80.0, 50.0), (226.0, 206.0, 150.0), 0.0, 1.0, swing, 0.0, 0.0)
            scene, center = np.zeros((64, 64, 3), np.float32), np.array([32.0, 32.0])
            parts._paste(scene, creature.creature(look, pose), center, 20.0, 0.0, mirrored=False)
            sprites.append(scene)
        body = (sprites[0].max(axis=2) > 10).sum()
        for number, sprite in enumerate(sprites):
            for other in sprites[:number]:
                assert (np.abs(sprite - other).max(axis=2) > 40).sum() > 0.015 * body

    def test_images_are_those_that_were_looked_at(self, tmp_path: Path) -> None:
        """KNOWN has an image of each of 64 classes, which have every value of every attribute, at 16 x 16
        pixels."""
        looks = parts.classes(PartsSource())
        files = [parts.photograph(PartsSource(), looks, label, label % 5) for label in range(64)]
        small = [
            cv2.resize(decode(np.frombuffer(file, np.uint8)), (16, 16), interpolation=cv2.INTER_AREA)
            for file in files
        ]
        sheet = np.vstack([np.hstack(small[start : start + 8]) for start in range(0, 64, 8)])
        Image.fromarray(sheet).save(tmp_path / KNOWN.name)
        known = np.asarray(Image.open(KNOWN))
        difference = abs(sheet.astype(int) - known).max()
        assert difference <= 6, f"Look at {tmp_path / KNOWN.name}. If it is right, put it into {KNOWN}."

    def test_pastes_a_sprite_at_its_position(self) -> None:
        """A square at x = 1, y = 0 of the sprite's plane is pasted at the rotated and mirrored position. For
        a positive turn the rotation is counterclockwise on the screen."""
        sprite = np.zeros((creature.PIXELS, creature.PIXELS, 4), np.uint8)
        y, x = creature.PIXELS / 2, creature.PIXELS / 2 + creature.UNIT
        sprite[round(y - 4) : round(y + 4), round(x - 4) : round(x + 4)] = 255
        for turn, mirrored, expected in (
            (0.0, False, (70, 40)),
            (np.pi / 2, False, (50, 20)),
            (0.0, True, (30, 40)),
            (np.pi / 2, True, (50, 60)),
        ):
            scene = np.zeros((80, 100, 3), np.float32)
            parts._paste(scene, sprite, np.array([50.0, 40.0]), 20.0, turn, mirrored)
            weight = scene[..., 0] / scene[..., 0].sum()
            y, x = np.mgrid[:80, :100]
            assert ((weight * x).sum(), (weight * y).sum()) == pytest.approx(expected, abs=0.6)


def recall_at_1(features: np.ndarray, labels: np.ndarray) -> float:
    """Recall@1 under cosine similarity of mean-centred features."""
    centred = features - features.mean(axis=0)
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    similarity = centred @ centred.T
    np.fill_diagonal(similarity, -np.inf)
    return float((labels[similarity.argmax(axis=1)] == labels).mean())


@pytest.mark.slow
def test_raw_pixels_and_colours_have_a_low_recall() -> None:
    """64 test classes of 8 images: Recall@1 is 0.015 by chance, below 0.15 for raw pixels and below 0.12 for
    a colour histogram. Both are above chance."""
    collection = parts.collection(PartsSource())
    pictures = [picture for picture in collection.pictures if picture.split == "test"][::2]
    labels = np.array([picture.class_name for picture in pictures])
    thumbnails, histograms = [], []
    for picture in pictures:
        image = Image.fromarray(decode(np.frombuffer(collection.read(picture.source), np.uint8)))
        side = min(image.size)
        left, top = (image.width - side) // 2, (image.height - side) // 2
        image = image.crop((left, top, left + side, top + side)).resize((32, 32), Image.Resampling.BOX)
        thumbnails.append(np.asarray(image, np.float64).ravel())
        levels = np.asarray(image).reshape(-1, 3) // 43
        histograms.append(np.sqrt(np.bincount(levels @ [36, 6, 1], minlength=216)))
    assert 0.04 < recall_at_1(np.stack(thumbnails), labels) < 0.15
    assert 0.03 < recall_at_1(np.stack(histograms), labels) < 0.12


class TestCreatureMask:
    @pytest.mark.parametrize("image", range(6))
    def test_covers_the_pixels_that_depend_on_the_creature(self, image: int) -> None:
        """Two palettes, with all other random numbers equal, differ where the creature is."""
        looks = parts.classes(SMALL)
        mask = parts.creature_mask(SMALL, looks, f"train/c000/{image:04d}.jpg")
        first, second = (
            parts._compose(
                np.random.Generator(np.random.PCG64(np.random.SeedSequence([SMALL.seed, 1, 0, image]))),
                SMALL,
                looks[0]._replace(palette=palette),
            )[0]
            for palette in ("rust-teal", "moss-cream")
        )
        different = np.abs(first - second).max(2) > 1
        assert mask.shape == first.shape[:2]
        assert not different[mask == 0].any()
        assert different[mask > 0.5].mean() > 0.8
        assert 0.1 < mask.mean() < 0.6

    @pytest.mark.slow
    def test_a_distractor_in_front_hides_the_creature(self, monkeypatch: pytest.MonkeyPatch) -> None:
        looks = parts.classes(SMALL)
        names = [f"train/c000/{image:04d}.jpg" for image in range(8)]
        monkeypatch.setattr(parts, "OCCLUDED", 0)
        whole = [parts.creature_mask(SMALL, looks, name) for name in names]
        monkeypatch.setattr(parts, "OCCLUDED", 1)
        visible = [parts.creature_mask(SMALL, looks, name) for name in names]
        assert all((part <= full).all() for part, full in zip(visible, whole, strict=True))
        assert sum(part.sum() < 0.97 * full.sum() for part, full in zip(visible, whole, strict=True)) >= 6

    @pytest.mark.slow
    def test_the_mask_has_the_shape_of_the_decoded_image(self) -> None:
        masks, reader = parts.creature_masks(SMALL), parts.collection(SMALL).read
        for name in (f"train/c00{label}/{image:04d}.jpg" for label in (0, 3) for image in range(8)):
            encoded = np.frombuffer(reader(name), np.uint8)
            assert masks(name).shape == decode(encoded).shape[:2]
            assert masks(name) is masks(name)
