"""The files of published data sets: names, sizes, hashes and links. Numbers that no public source confirms
are omitted.

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

from unseen.runtime.errors import UserError


@dataclass(frozen=True)
class PublishedFile:
    """One file as its authors publish it. `url`: a direct link by the authors; `unpacked`: a path that exists
    beside the file after it was unpacked there."""

    name: str
    size: int | None = None  # bytes
    md5: str | None = None
    sha256: str | None = None
    url: str | None = None
    unpacked: str | None = None
    folder: str = ""  # within the folder of the data set

    @property
    def stem(self) -> str:
        """The name without the suffix of an archive. It identifies the archive also if it was packed again in
        another format."""
        name = self.name
        for suffix in (".tar.gz", ".tgz", ".tar", ".zip"):
            name = name.removesuffix(suffix)
        return name

    def description(self) -> str:
        """`CUB_200_2011.tgz (1,150,585,339 bytes, md5 97ee...)`."""
        size = [f"{self.size:,} bytes"] if self.size is not None else []
        hashes = [f"{kind} {value}" for kind, value in (("md5", self.md5), ("sha256", self.sha256)) if value]
        details = f" ({', '.join(size + hashes[:1])})" if size or hashes else ""
        return self.folder + self.name + details


@dataclass(frozen=True)
class Published:
    """A data set as published: its layouts (each is the complete set), its page, and advice for the case that
    no direct link works."""

    title: str
    page: str
    layouts: tuple[tuple[PublishedFile, ...], ...]
    advice: str = ""

    @property
    def files(self) -> tuple[PublishedFile, ...]:
        return tuple(file for layout in self.layouts for file in layout)

    @property
    def linked_layout(self) -> tuple[PublishedFile, ...] | None:
        """The first layout in which every file has a direct link, or None."""
        return next((layout for layout in self.layouts if all(file.url for file in layout)), None)

    def layouts_text(self) -> str:
        """The files of all layouts in one sentence."""
        return "; or ".join(" and ".join(file.description() for file in layout) for layout in self.layouts)


_BLURRED = (
    "Faces are blurred in the images published since June 2022 (`-v1`). The older archives are read too; "
    "results differ slightly."
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
        "The page and the files were removed in 2023 (HTTP 404), and there is no other official source. "
        "Ask a colleague who has the files, or the authors of the set; "
        "https://github.com/pytorch/vision/issues/7545 lists copies. "
        "Compare the md5 of a copy with the published one.",
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
                    # the page links the same file with ftp
                    "http://ftp.cs.stanford.edu/cs/cvgl/Stanford_Online_Products.zip",
                    "Stanford_Online_Products/Ebay_train.txt",
                ),
            ),
        ),
        "The page links the same file: ftp://cs.stanford.edu/cs/cvgl/Stanford_Online_Products.zip.",
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
        "The authors give access for research after an agreement: follow the page to its drive, folder "
        "`In-shop Clothes Retrieval Benchmark`. The benchmark uses `Img/img.zip`, not `img_highres.zip`.",
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
        "Use the binary version. The python version contains pickles of the same pixels and is not read.",
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
        "Use the binary version. The python version contains pickles of the same pixels and is not read.",
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


def missing_data_error(dataset: str, path: Path, problem: str) -> UserError:
    """An error whose remedy describes the files that `path` must contain. `problem` completes a sentence that
    begins with the path: "contains no images.txt"."""
    published = PUBLISHED[dataset]
    fetch = f"`unseen data {dataset}` downloads it to data/raw/{dataset}. " if published.linked_layout else ""
    return UserError(
        f"{path} {problem}.",
        f"{published.title} is published as {published.layouts_text()}. {fetch}"
        f"Its page is {published.page}. {published.advice}".rstrip(),
    )


def registry_key(published: Published) -> str:
    """The key of a data set in PUBLISHED."""
    return next(key for key, entry in PUBLISHED.items() if entry is published)


def published_details(files: Iterable[PublishedFile], name: str) -> str:
    """A sentence with the published size and hash of the file `name`, for the end of a message; empty if
    neither is known."""
    matches = [file for file in files if file.name == name and (file.size is not None or file.md5)]
    return f" The published file is {matches[0].description()}." if matches else ""
