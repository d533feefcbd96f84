"""The source of a data set, and the settings of ingest."""

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, SerializeAsAny, TypeAdapter, model_validator

from unseen.runtime.parts import PartSettings, opened
from unseen.runtime.settings import Count, Seed, Strict, as_json


class PartsSource(Strict):
    """The built-in set, drawn by a seeded generator."""

    module: ClassVar[str] = "unseen.data.ingest.sources.parts"
    kind: Literal["parts"] = "parts"
    seed: Seed = 0
    train_classes: Annotated[int, Field(ge=2)] = 64
    test_classes: Annotated[int, Field(ge=2)] = 64
    images_per_class: Annotated[int, Field(ge=2)] = 16
    size: tuple[Count, Count] = (88, 128)  # range of the sides, pixels


class OwnSource(Strict):
    """Images of a user."""

    path: str  # file or folder, relative to the project or absolute
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.5  # of the classes, if the files define no split
    # how test classes are chosen: at random with `seed`, or the last ones in name order
    order: Literal["random", "name"] = "random"
    seed: Seed = 0


class FolderSource(OwnSource):
    """Images of a user: one directory per class, or a CSV of `path,label[,split,is_query,is_gallery]`; a
    folder or a zip archive."""

    module: ClassVar[str] = "unseen.data.ingest.sources.folder"
    kind: Literal["folder"] = "folder"
    labels: str | None = None  # CSV inside `path`; None: the class of an image is the name of its directory


class ParquetSource(OwnSource):
    """Images of a user in Parquet or Arrow tables, such as those of Hugging Face `datasets`: a file, or a
    folder of files. Optional columns are `split`, `is_query` and `is_gallery`, as in the CSV of a folder."""

    module: ClassVar[str] = "unseen.data.ingest.sources.parquet"
    kind: Literal["parquet"] = "parquet"
    images: str = "image"  # column of bytes, of paths relative to the folder, or of struct<bytes, path>
    labels: str = "label"  # column of integers or text
    # classes: all classes are divided by test_share, unless a column gives their split; files: the names of
    # the files or of their folder begin with train, val or test. Validation classes are train classes.
    split: Literal["classes", "files"] = "classes"


class WebdatasetSource(OwnSource):
    """Images of a user in tar archives, compressed or not: members `<key>.jpg` with `<key>.cls` or
    `<key>.json`; an archive, or a folder of archives."""

    module: ClassVar[str] = "unseen.data.ingest.sources.webdataset"
    kind: Literal["webdataset"] = "webdataset"
    labels: str = "cls"  # the member that is the label; json.<name>: a value of the member `json`
    split: Literal["classes", "files"] = "classes"  # as for Parquet


class CubSource(Strict):
    """CUB-200-2011: `CUB_200_2011.tgz`, or its content."""

    module: ClassVar[str] = "unseen.data.ingest.sources.cub"
    kind: Literal["cub"] = "cub"
    # the archive, or the folder that contains it or its files; relative to the project or absolute
    path: str = "data/raw/cub"


class CarsSource(Strict):
    """Cars-196: `car_ims.tgz` and `cars_annos.mat`; or `cars_train.tgz`, `cars_test.tgz`, `car_devkit.tgz`
    and `cars_test_annos_withlabels.mat`."""

    module: ClassVar[str] = "unseen.data.ingest.sources.cars"
    kind: Literal["cars"] = "cars"
    path: str = "data/raw/cars"  # folder that contains these files, packed or unpacked


class SopSource(Strict):
    """Stanford Online Products: `Stanford_Online_Products.zip`, or its content."""

    module: ClassVar[str] = "unseen.data.ingest.sources.sop"
    kind: Literal["sop"] = "sop"
    path: str = "data/raw/sop"  # the archive, or the folder that contains it or its files


class InshopSource(Strict):
    """In-Shop Clothes Retrieval: `Img/img.zip` (or its content) and `Eval/list_eval_partition.txt`."""

    module: ClassVar[str] = "unseen.data.ingest.sources.inshop"
    kind: Literal["inshop"] = "inshop"
    path: str = "data/raw/inshop"  # folder that contains `Img` and `Eval`


class Cifar10Source(Strict):
    """CIFAR-10: `cifar-10-binary.tar.gz`, or the folder in it. The pickles of the python version are never
    read."""

    module: ClassVar[str] = "unseen.data.ingest.sources.cifar"
    kind: Literal["cifar10"] = "cifar10"
    path: str = "data/raw/cifar10"  # the archive, or the folder that contains it or its files
    # classes: the first half of the classes in label order is train, the other half test; each class has its
    # images of both official parts. images: the official parts, so that test contains unseen images of seen
    # classes. Then training uses all classes (training.protocol: published), as in GSP figure 5.
    split: Literal["classes", "images"] = "classes"


class Cifar100Source(Strict):
    """CIFAR-100: `cifar-100-binary.tar.gz`, or the folder in it."""

    module: ClassVar[str] = "unseen.data.ingest.sources.cifar"
    kind: Literal["cifar100"] = "cifar100"
    path: str = "data/raw/cifar100"
    split: Literal["classes", "images"] = "classes"  # as for CIFAR-10


class CollageSource(Strict):
    """Cifar Collage (GSP section 5.1), made of CIFAR-100: one image of a class and three of shared classes,
    stitched 2 x 2."""

    module: ClassVar[str] = "unseen.data.ingest.sources.collage"
    kind: Literal["collage"] = "collage"
    path: str = "data/raw/cifar100"
    distilled: bool = False  # the same images alone, without the shared classes
    # subclasses for training, of five per class; 3: released code; 2: the text, which validates on the third
    train_subclasses: Literal[2, 3] = 3
    seed: Seed = 0


class OmniglotSource(Strict):
    """Omniglot: `images_background.zip` and `images_evaluation.zip`, or the two folders in them."""

    module: ClassVar[str] = "unseen.data.ingest.sources.omniglot"
    kind: Literal["omniglot"] = "omniglot"
    path: str = "data/raw/omniglot"  # folder that contains both, or one archive of both folders


class TokensSource(Strict):
    """The token corpus of the synthetic study (GSP section 5.1), drawn by a seeded generator."""

    module: ClassVar[str] = "unseen.data.ingest.sources.tokens"
    kind: Literal["tokens"] = "tokens"
    seed: Seed = 0
    classes: Annotated[int, Field(ge=2)] = 16
    class_tokens: Count = 4  # of each class
    shared_tokens: Count = 4  # background, of all classes
    bag: Annotated[int, Field(ge=2)] = 50  # tokens of a sample, as in the text; the released code has 10
    # mean share of background tokens, as in the text; the released code has 0.7
    background: Annotated[float, Field(ge=0, le=1)] = 0.5
    deviation: Annotated[float, Field(ge=0)] = 0.1  # of that share
    train_per_class: Annotated[int, Field(ge=2)] = 4096  # 512 x 8 (released code)
    validation_per_class: Annotated[int, Field(ge=2)] = 128  # released code
    test_per_class: Annotated[int, Field(ge=2)] = 128


class Sfm120kSource(Strict):
    """retrieval-SfM-120k: `retrieval-SfM-120k.pkl` and `ims.tar.gz`, or the folder `ims`."""

    module: ClassVar[str] = "unseen.data.ingest.sources.sfm120k"
    kind: Literal["sfm120k"] = "sfm120k"
    path: str = "data/raw/sfm120k"  # folder that contains both


class RoxfordSource(Strict):
    """Revisited Oxford: `gnd_roxford5k.pkl` and `oxbuild_images-v1.tgz`, or its images."""

    module: ClassVar[str] = "unseen.data.ingest.sources.revisited"
    kind: Literal["roxford5k"] = "roxford5k"
    path: str = "data/raw/roxford5k"  # folder that contains both


class RparisSource(Strict):
    """Revisited Paris: `gnd_rparis6k.pkl`, `paris_1-v1.tgz` and `paris_2-v1.tgz`, or their images."""

    module: ClassVar[str] = "unseen.data.ingest.sources.revisited"
    kind: Literal["rparis6k"] = "rparis6k"
    path: str = "data/raw/rparis6k"  # folder that contains all three


class LandmarksSource(Strict):
    """Particular objects (IRT section 4.2): training on retrieval-SfM-120k, evaluation on revisited Oxford,
    revisited Paris, or both."""

    module: ClassVar[str] = "unseen.data.ingest.sources.landmarks"
    kind: Literal["landmarks"] = "landmarks"
    sfm120k: str = "data/raw/sfm120k"  # folders, as for each of the three sets alone
    roxford5k: str | None = "data/raw/roxford5k"  # None: omit this benchmark
    rparis6k: str | None = "data/raw/rparis6k"

    @model_validator(mode="after")
    def _has_benchmark(self) -> "LandmarksSource":
        if self.roxford5k is None and self.rparis6k is None:
            raise ValueError("roxford5k or rparis6k must be set: evaluation needs at least one benchmark")
        return self


class OutsideSource(PartSettings):
    """The reader of a user, the module `package.module`: a function `collection(settings, scratch)`, as in
    the modules of pipeline/data/ingest/sources, and `Settings`, a subclass of `Strict` with the fields beside
    `module`.

    LIKE: the published data set whose settings the recipes have.
    """

    whole: ClassVar[bool] = True
    required: ClassVar[tuple[str, ...]] = ("collection",)
    LIKE: ClassVar[str] = "folder"
    module: str

    @property
    def kind(self) -> str:
        return self.LIKE

    @classmethod
    def fields_of(cls, part: type, path: str) -> dict[str, Any]:
        return {}


_Own = (
    PartsSource
    | FolderSource
    | ParquetSource
    | WebdatasetSource
    | CubSource
    | CarsSource
    | SopSource
    | InshopSource
    | Cifar10Source
    | Cifar100Source
    | CollageSource
    | OmniglotSource
    | TokensSource
    | Sfm120kSource
    | RoxfordSource
    | RparisSource
    | LandmarksSource
)
_OWN: TypeAdapter[_Own] = TypeAdapter(Annotated[_Own, Field(discriminator="kind")])
Source = _Own | OutsideSource
AnySource = SerializeAsAny[
    Annotated[Source, opened(OutsideSource, lambda value: _OWN.validate_json(as_json(value)))]
]
# the classes of sources, by their `kind`
SOURCES = {cls.model_fields["kind"].default: cls for cls in get_args(_Own)}


class IngestSettings(Strict):
    """Block `ingest`."""

    # length of the shorter side in pixels in the shards; None: JPEG files keep their bytes
    resize: Count | None = None
    quality: Annotated[int, Field(ge=1, le=100)] = 95  # of the JPEG files that ingest encodes
    on_error: Literal["stop", "skip"] = "stop"  # what ingest does on a corrupt image
    shard_mebibytes: Annotated[int, Field(ge=1, le=256)] = 256
