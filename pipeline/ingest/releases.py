"""The files in which data sets are published: names, sizes, hashes, where they are to be had. Numbers that no
public source confirms are left out.

Sources: CUB: data.caltech.edu record 65de6-vp158 (md5), TensorFlow Datasets checksums (bytes, sha256). Cars:
pytorch-metric-learning's powerful-benchmarker (md5 of car_ims.tgz, cars_annos.mat), torchvision (md5 of the
others), TensorFlow Datasets (bytes, sha256 of the others). SOP: powerful-benchmarker (md5), TensorFlow
Datasets (bytes, sha256). CIFAR: its page (md5), TensorFlow Datasets (bytes, sha256). Omniglot: torchvision
(md5). SfM-120k and the revisited sets: links of cnnimageretrieval-pytorch and revisitop; no public source has
their hashes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pipeline.runtime.errors import UserError


@dataclass(frozen=True)
class PublishedFile:
    """One file as its authors publish it. `url`: a direct link that they give; `unpacked`: what lies beside
    the file once it is unpacked there."""

    name: str
    size: int | None = None  # bytes
    md5: str | None = None
    sha256: str | None = None
    url: str | None = None
    unpacked: str | None = None
    folder: str = ""  # of the data set's folder, in which the file belongs

    @property
    def stem(self) -> str:
        """The name without the suffix of an archive: an archive packed anew in another format still is the
        same archive."""
        name = self.name
        for suffix in (".tar.gz", ".tgz", ".tar", ".zip"):
            name = name.removesuffix(suffix)
        return name

    def described(self) -> str:
        """`CUB_200_2011.tgz (1,150,585,339 bytes, md5 97ee...)`."""
        size = [f"{self.size:,} bytes"] if self.size is not None else []
        hashes = [f"{kind} {value}" for kind, value in (("md5", self.md5), ("sha256", self.sha256)) if value]
        known = f" ({', '.join(size + hashes[:1])})" if size or hashes else ""
        return self.folder + self.name + known


@dataclass(frozen=True)
class Published:
    """A data set as published: its layouts (any one of them is the whole set), its page, and what to know
    when no direct link works."""

    title: str
    page: str
    layouts: tuple[tuple[PublishedFile, ...], ...]
    advice: str = ""

    @property
    def files(self) -> tuple[PublishedFile, ...]:
        return tuple(file for layout in self.layouts for file in layout)

    @property
    def linked(self) -> tuple[PublishedFile, ...] | None:
        """The first layout of which every file has a direct link; None when there is none."""
        return next((layout for layout in self.layouts if all(file.url for file in layout)), None)

    def wanted(self) -> str:
        """All layouts in words."""
        return "; or ".join(" and ".join(file.described() for file in layout) for layout in self.layouts)


_BLURRED = (
    "Faces are blurred in the images published since June 2022 (`-v1`); the older archives are read too, "
    "and numbers differ a little."
)

PUBLISHED: dict[str, Published] = {
    "cub": Published(
        "CUB-200-2011",
        "https://www.vision.caltech.edu/datasets/cub_200_2011/",
        (
            (
                PublishedFile(
                    "CUB_200_2011.tgz",
                    1_150_585_339,
                    "97eceeb196236b17998738112f37df78",
                    "0c685df5597a8b24909f6a7c9db6d11e008733779a671760afef78feb49bf081",
                    "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz?download=1",
                    "CUB_200_2011/images.txt",
                ),
            ),
        ),
    ),
    "cars": Published(
        "Cars-196",
        "https://ai.stanford.edu/~jkrause/cars/car_dataset.html",
        (
            (
                PublishedFile("car_ims.tgz", None, "d5c8f0aa497503f355e17dc7886c3f14", unpacked="car_ims/"),
                PublishedFile("cars_annos.mat", None, "b407c6086d669747186bd1d764ff9dbc"),
            ),
            (
                PublishedFile(
                    "cars_train.tgz",
                    979_269_282,
                    "065e5b463ae28d29e77c1b4b166cfe61",
                    "512b227b30e2f0a8aab9e09485786ab4479582073a144998da74d64b801fd288",
                    unpacked="cars_train/",
                ),
                PublishedFile(
                    "cars_test.tgz",
                    977_350_468,
                    "4ce7ebf6a94d07f1952d94dd34c4d501",
                    "bffea656d6f425cba3c91c6d83336e4c5f86c6cffd8975b0f375d3a10da8e243",
                    unpacked="cars_test/",
                ),
                PublishedFile(
                    "car_devkit.tgz",
                    330_960,
                    "c3b158d763b6e2245038c8ad08e45376",
                    "b97deb463af7d58b6bfaa18b2a4de9829f0f79e8ce663dfa9261bf7810e9accd",
                    unpacked="devkit/",
                ),
                PublishedFile(
                    "cars_test_annos_withlabels.mat",
                    185_758,
                    "b0a2b23655a3edd16d84508592a98d10",
                    "790f75be8ea34eeded134cc559332baf23e30e91367e9ddca97d26ed9b895f05",
                ),
            ),
        ),
        "The page and the files have been gone since 2023 (HTTP 404) and there is no other official place. "
        "Ask a colleague who has them, or the "
        "authors of the set; https://github.com/pytorch/vision/issues/7545 lists copies. The md5 tells "
        "whether a copy is the original.",
    ),
    "sop": Published(
        "Stanford Online Products",
        "https://cvgl.stanford.edu/projects/lifted_struct/",
        (
            (
                PublishedFile(
                    "Stanford_Online_Products.zip",
                    3_083_860_082,
                    "7f73d41a2f44250d4779881525aea32e",
                    "b04fa78210e69fab050ce73939550e1cd0f96890bdd98ec9fee732c3b756ef48",
                    # by http what the page links as ftp
                    "http://ftp.cs.stanford.edu/cs/cvgl/Stanford_Online_Products.zip",
                    "Stanford_Online_Products/Ebay_train.txt",
                ),
            ),
        ),
        "The page links the same file as ftp://cs.stanford.edu/cs/cvgl/Stanford_Online_Products.zip.",
    ),
    "inshop": Published(
        "In-Shop Clothes Retrieval",
        "https://mmlab.ie.cuhk.edu.hk/projects/DeepFashion/InShopRetrieval.html",
        (
            (
                PublishedFile("img.zip", unpacked="img/", folder="Img/"),
                PublishedFile("list_eval_partition.txt", folder="Eval/"),
            ),
        ),
        "It is given for research after an agreement with the authors: follow the page to its drive, folder "
        "`In-shop Clothes Retrieval Benchmark`. "
        "`Img/img.zip` is the file of the benchmark; `img_highres.zip` is not.",
    ),
    "cifar10": Published(
        "CIFAR-10",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        (
            (
                PublishedFile(
                    "cifar-10-binary.tar.gz",
                    170_052_171,
                    "c32a1d4ab5d03f1284b67883e8d87530",
                    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                    "cifar-10-batches-bin/",
                ),
            ),
        ),
        "The binary version is read; the python version holds pickles of the same pixels.",
    ),
    "cifar100": Published(
        "CIFAR-100",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        (
            (
                PublishedFile(
                    "cifar-100-binary.tar.gz",
                    168_513_733,
                    "03b5dce01913d631647c71ecec9e9cb8",
                    "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
                    "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
                    "cifar-100-binary/",
                ),
            ),
        ),
        "The binary version is read; the python version holds pickles of the same pixels.",
    ),
    "omniglot": Published(
        "Omniglot",
        "https://github.com/brendenlake/omniglot",
        (
            (
                PublishedFile(
                    "images_background.zip",
                    None,
                    "68d2efa1b9178cc56df9314c21c6e718",
                    url="https://github.com/brendenlake/omniglot/raw/master/python/images_background.zip",
                    unpacked="images_background/",
                ),
                PublishedFile(
                    "images_evaluation.zip",
                    None,
                    "6b91aef0f799c5bb55b94e3f2daec811",
                    url="https://github.com/brendenlake/omniglot/raw/master/python/images_evaluation.zip",
                    unpacked="images_evaluation/",
                ),
            ),
        ),
    ),
    "sfm120k": Published(
        "retrieval-SfM-120k",
        "http://cmp.felk.cvut.cz/cnnimageretrieval/",
        (
            (
                PublishedFile(
                    "retrieval-SfM-120k.pkl",
                    url="http://cmp.felk.cvut.cz/cnnimageretrieval/data/train/dbs/retrieval-SfM-120k.pkl",
                ),
                PublishedFile(
                    "ims.tar.gz",
                    url="http://cmp.felk.cvut.cz/cnnimageretrieval/data/train/ims/ims.tar.gz",
                    unpacked="ims/",
                ),
            ),
        ),
    ),
    "roxford5k": Published(
        "Revisited Oxford",
        "http://cmp.felk.cvut.cz/revisitop/",
        (
            (
                PublishedFile(
                    "gnd_roxford5k.pkl",
                    url="http://cmp.felk.cvut.cz/cnnimageretrieval/data/test/roxford5k/gnd_roxford5k.pkl",
                ),
                PublishedFile(
                    "oxbuild_images-v1.tgz",
                    url="https://www.robots.ox.ac.uk/~vgg/data/oxbuildings/oxbuild_images-v1.tgz",
                    unpacked="jpg/",
                ),
            ),
            (
                PublishedFile("gnd_roxford5k.pkl"),
                PublishedFile("oxbuild_images.tgz", unpacked="jpg/"),
            ),
        ),
        _BLURRED,
    ),
    "rparis6k": Published(
        "Revisited Paris",
        "http://cmp.felk.cvut.cz/revisitop/",
        (
            (
                PublishedFile(
                    "gnd_rparis6k.pkl",
                    url="http://cmp.felk.cvut.cz/cnnimageretrieval/data/test/rparis6k/gnd_rparis6k.pkl",
                ),
                PublishedFile(
                    "paris_1-v1.tgz",
                    url="https://www.robots.ox.ac.uk/~vgg/data/parisbuildings/paris_1-v1.tgz",
                    unpacked="jpg/",
                ),
                PublishedFile(
                    "paris_2-v1.tgz",
                    url="https://www.robots.ox.ac.uk/~vgg/data/parisbuildings/paris_2-v1.tgz",
                    unpacked="jpg/",
                ),
            ),
            (
                PublishedFile("gnd_rparis6k.pkl"),
                PublishedFile("paris_1.tgz", unpacked="jpg/"),
                PublishedFile("paris_2.tgz", unpacked="jpg/"),
            ),
        ),
        _BLURRED,
    ),
}


def not_there(dataset: str, path: Path, found: str) -> UserError:
    """What to put where, when `path` does not hold the set. `found` ends a sentence that begins with the
    path: "holds no images.txt"."""
    published = PUBLISHED[dataset]
    fetch = f"`unseen data {dataset}` downloads it into data/raw/{dataset}. " if published.linked else ""
    return UserError(
        f"{path} {found}.",
        f"{published.title} is published as {published.wanted()}. {fetch}"
        f"Its page is {published.page}. {published.advice}".rstrip(),
    )


def key_of(published: Published) -> str:
    """The name under which a set is registered."""
    return next(name for name, known in PUBLISHED.items() if known is published)


def expectation(files: Iterable[PublishedFile], name: str) -> str:
    """What is known about the file of this name, as a sentence to end a message with; empty when nothing
    is."""
    known = [file for file in files if file.name == name and (file.size is not None or file.md5)]
    return f" The published file is {known[0].described()}." if known else ""
