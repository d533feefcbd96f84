"""The losses of a recipe: part `loss`, chosen by `name`, and the terms beside it. Defaults are the released
constants.

`module` is the class of a loss; the other fields are its arguments, by name (pipeline/methods/modules.py).
`inputs` is also an attribute of the class.
The first paragraph of a docstring is the description in docs/library.md. docs/extending.md adds a loss.
"""

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Discriminator, Field, SerializeAsAny

from unseen.runtime.parts import Calls, PartSettings, opened
from unseen.runtime.settings import Count, NonNegative, Positive, Share, Strict

Inputs = Literal["pairs", "proxies", "samples", "tuples"]


_ARGUMENTS: dict[Inputs, tuple[str, ...]] = {
    "pairs": ("embeddings", "labels"),
    "proxies": ("embeddings", "labels"),
    "samples": ("embeddings", "labels", "samples"),
    "tuples": ("query", "positive", "negatives"),
}


class LossSettings(PartSettings):
    """What a recipe asks of its loss.

    inputs: what an image is compared with: images of the batch or of a memory, vectors of the classes, a
    memory of all training images, or the images of its tuple. gradient: that of the value, or a surrogate of
    a definition that stops gradients.
    """

    given: ClassVar[tuple[str, ...]] = ("classes", "dim", "samples")
    base_class: ClassVar[str] = "torch.nn:Module"
    inputs: ClassVar[Inputs] = "pairs"
    gradient: ClassVar[Literal["value", "surrogate"]] = "value"

    @classmethod
    def calls_of(cls, part: Any) -> Calls:
        return {"forward": _ARGUMENTS[getattr(part, "inputs", cls.inputs)]}

    @property
    def term(self) -> str:
        """The name of the value among the terms of an objective."""
        name: str = self.name  # type: ignore[attr-defined]
        return name

    @property
    def parts(self) -> tuple[tuple["LossSettings", float], ...]:
        """The losses whose weighted sum this is."""
        return ((self, 1.0),)


class MultiSimilarityLoss(LossSettings):
    """Soft maxima of the similarities on both sides of a threshold; mined pairs (Wang et al. 2019)."""

    module: ClassVar[str] = "unseen.losses.multi_similarity:MultiSimilarity"
    name: Literal["multi_similarity"] = "multi_similarity"
    alpha: Positive = 2.0
    beta: Positive = 40.0
    threshold: float = 0.5  # lambda
    mining_margin: NonNegative | None = 0.1  # epsilon; None: no mining


class ContrastiveLoss(LossSettings):
    """Cosines: sum of 1 - s over positives plus sum of [s - margin]_+ over negatives (XBM; IRT eq. 1)."""

    module: ClassVar[str] = "unseen.losses.contrastive:Contrastive"
    name: Literal["contrastive"] = "contrastive"
    margin: Annotated[float, Field(ge=-1, lt=1)] = 0.5


class EuclideanContrastiveLoss(LossSettings):
    """Distances with two margins, each side averaged over its non-zero terms (C2 of MLRC and GSP)."""

    module: ClassVar[str] = "unseen.losses.euclidean_contrastive:EuclideanContrastive"
    name: Literal["euclidean_contrastive"] = "euclidean_contrastive"
    positive_margin: NonNegative = 0.0
    negative_margin: Positive = 0.5  # GSP code


class TripletLoss(LossSettings):
    """[d_ap - d_an + margin]_+ averaged over its non-zero terms (Schroff et al. 2015; GSP code)."""

    module: ClassVar[str] = "unseen.losses.triplet:Triplet"
    name: Literal["triplet"] = "triplet"
    margin: Positive = 0.05  # GSP code
    mining: Literal["all", "semihard"] = "all"


class MarginLoss(LossSettings):
    """Distances with a boundary; negatives weighted by the rarity of their distance (Wu et al. 2017)."""

    module: ClassVar[str] = "unseen.losses.margin:Margin"
    gradient: ClassVar[Literal["value", "surrogate"]] = "surrogate"  # the weights are constants
    name: Literal["margin"] = "margin"
    margin: Positive = 0.2  # alpha; released code
    boundary: Positive = 1.2  # beta; released code
    cutoff: Positive = 0.5  # least distance of a weight; released code


class FastApLoss(LossSettings):
    """Average precision over histograms of the squared distances (Cakir et al. 2019)."""

    module: ClassVar[str] = "unseen.losses.fast_ap:FastAp"
    name: Literal["fast_ap"] = "fast_ap"
    bins: Count = 10  # released code


class ProxyAnchorLoss(LossSettings):
    """Each class is a proxy, each proxy an anchor (Kim et al. 2020)."""

    module: ClassVar[str] = "unseen.losses.proxy_anchor:ProxyAnchor"
    inputs: ClassVar[Inputs] = "proxies"
    name: Literal["proxy_anchor"] = "proxy_anchor"
    alpha: Positive = 32.0
    margin: NonNegative = 0.1  # delta


class ProxyNcaLoss(LossSettings):
    """ProxyNCA++: softmax over scale * cosine, the positive proxy included (Teh et al. 2020)."""

    module: ClassVar[str] = "unseen.losses.proxy_nca:ProxyNca"
    inputs: ClassVar[Inputs] = "proxies"
    name: Literal["proxy_nca"] = "proxy_nca"
    scale: Positive = 18.0  # squared distance of vectors of length 3; GSP code: 1 / 0.11
    # of the proxies; GSP code: he_normal
    initialization: Literal["normal_over_8", "he_normal"] = "normal_over_8"


class OriginalProxyNcaLoss(LossSettings):
    """The first ProxyNCA: the sum over proxies excludes the own one (Movshovitz-Attias et al. 2017)."""

    module: ClassVar[str] = "unseen.losses.proxy_nca_original:OriginalProxyNca"
    inputs: ClassVar[Inputs] = "proxies"
    name: Literal["proxy_nca_original"] = "proxy_nca_original"
    scale: Positive = 2.0  # squared distance of unit vectors


class SoftTripleLoss(LossSettings):
    """Softmax over classes with several centers each, which may become equal (Qian et al. 2019)."""

    module: ClassVar[str] = "unseen.losses.soft_triple:SoftTriple"
    inputs: ClassVar[Inputs] = "proxies"
    name: Literal["soft_triple"] = "soft_triple"
    scale: Positive = 20.0  # lambda; released code
    temperature: Positive = 0.1  # gamma; released code
    margin: NonNegative = 0.01  # delta; released code
    centers: Count = 10  # K, of a class; released code
    center_weight: NonNegative = 0.2  # tau; released code


class NormalizedSoftmaxLoss(LossSettings):
    """Cross entropy of cosine / temperature to unit class weights (Zhai and Wu 2018)."""

    module: ClassVar[str] = "unseen.losses.normalized_softmax:NormalizedSoftmax"
    inputs: ClassVar[Inputs] = "proxies"
    name: Literal["normalized_softmax"] = "normalized_softmax"
    temperature: Positive = 0.05


class CosFaceLoss(LossSettings):
    """Softmax of cosines to proxies, the target cosine less a margin (Wang et al. 2018)."""

    module: ClassVar[str] = "unseen.losses.margin_softmax:CosFace"
    inputs: ClassVar[Inputs] = "proxies"
    name: Literal["cosface"] = "cosface"
    scale: Positive = 64.0  # section 4.1
    margin: Annotated[float, Field(ge=0, lt=2)] = 0.35  # section 4.1


class ArcFaceLoss(LossSettings):
    """Softmax of cosines to proxies, the target angle plus a margin (Deng et al. 2019)."""

    module: ClassVar[str] = "unseen.losses.margin_softmax:ArcFace"
    inputs: ClassVar[Inputs] = "proxies"
    name: Literal["arcface"] = "arcface"
    scale: Positive = 64.0  # section 3.1
    margin: Annotated[float, Field(ge=0, lt=3.14)] = 0.5  # radians, section 3.1


class PartialFcLoss(LossSettings):
    """CosFace or ArcFace over the proxies of the batch and a random share of the others (An et al. 2022)."""

    module: ClassVar[str] = "unseen.losses.partial_fc:PartialFc"
    inputs: ClassVar[Inputs] = "proxies"
    name: Literal["partial_fc"] = "partial_fc"
    function: Literal["cosface", "arcface"] = "cosface"
    scale: Positive = 64.0  # released code
    margin: Annotated[float, Field(ge=0, lt=2)] = 0.4  # released code, of CosFace
    share: Annotated[float, Field(gt=0, le=1)] = 0.1  # r, section 4


class SncaLoss(LossSettings):
    """Scalable NCA: softmax over a memory of all training images (Wu et al. 2018)."""

    module: ClassVar[str] = "unseen.losses.snca:Snca"
    inputs: ClassVar[Inputs] = "samples"
    name: Literal["snca"] = "snca"
    temperature: Positive = 0.05
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.5  # of the memory's entries


class TupleContrastiveLoss(LossSettings):
    """Squared distance to the positive, squared hinge on mined negatives (Radenovic et al. 2018)."""

    module: ClassVar[str] = "unseen.losses.tuple_contrastive:TupleContrastive"
    inputs: ClassVar[Inputs] = "tuples"
    beside: ClassVar[frozenset[str]] = frozenset({"negatives"})
    name: Literal["tuple_contrastive"] = "tuple_contrastive"
    margin: Positive = 0.85  # a distance; IRT section 4.2 calls it beta
    negatives: Count = 5  # of a tuple


# Compare images with images; may be combined with a cross-batch memory.
AnyPairLoss = (
    MultiSimilarityLoss | ContrastiveLoss | EuclideanContrastiveLoss | TripletLoss | MarginLoss | FastApLoss
)
# Compare images with learned vectors of the classes.
AnyProxyLoss = (
    ProxyAnchorLoss
    | ProxyNcaLoss
    | OriginalProxyNcaLoss
    | SoftTripleLoss
    | NormalizedSoftmaxLoss
    | CosFaceLoss
    | ArcFaceLoss
    | PartialFcLoss
)
PairLoss = SerializeAsAny[
    Annotated[AnyPairLoss, Discriminator("name"), opened(LossSettings, inputs=("pairs",))]
]
ProxyLoss = SerializeAsAny[
    Annotated[AnyProxyLoss, Discriminator("name"), opened(LossSettings, inputs=("proxies",))]
]


class HybridLoss(LossSettings):
    """A pair loss and a proxy loss together (Multi-Head eq. 7)."""

    name: Literal["hybrid"] = "hybrid"
    pair: PairLoss = MultiSimilarityLoss()
    proxy: ProxyLoss = ProxyAnchorLoss()
    proxy_weight: NonNegative = 0.03  # lambda

    @property
    def parts(self) -> tuple[tuple[LossSettings, float], ...]:
        return ((self.pair, 1.0), (self.proxy, self.proxy_weight))


AnyOtherLoss = SncaLoss | TupleContrastiveLoss | HybridLoss
Loss = SerializeAsAny[
    Annotated[
        AnyPairLoss | AnyProxyLoss | AnyOtherLoss,
        Discriminator("name"),
        opened(LossSettings, inputs=get_args(Inputs)),
    ]
]


class CrossBatchMemory(Strict):
    """Cross-batch memory: a pair loss against embeddings of earlier batches (Wang et al. 2020)."""

    module: ClassVar[str] = "unseen.losses.memory:CrossBatchMemory"
    size: Count | None = None  # samples; None: `share` defines the size
    share: Annotated[float, Field(gt=0, le=1)] = 1.0  # of the training images
    start: Annotated[int, Field(ge=0)] = 0  # iterations before the memory is used
    weight: Positive = 1.0
    # true: loss of the batch + weight * loss against the memory (released XBM code); false: only the latter
    # (IRT eq. 1)
    with_batch: bool = True
    # of the averaged network whose embeddings fill the memory (IRT on In-Shop: 0.999); None: no such network
    momentum: Annotated[float, Field(ge=0, lt=1)] | None = None


class ZeroShotLoss(Strict):
    """Zero-shot prediction loss (GSP eq. 4.4; constants of its code)."""

    module: ClassVar[str] = "unseen.losses.zero_shot:ZeroShot"
    beside: ClassVar[frozenset[str]] = frozenset({"weight"})
    weight: Share = 0.1  # the weight of the pair loss is 1 - weight
    ridge: Positive = 0.05
    scale: Positive = 9.5  # of the logits; undocumented in the paper
    dim: Count = 128  # of the label embeddings
    # of the label embeddings. he_normal: GSP code, far above chance for few classes; chance: the loss starts
    # at about ln C for any number C of classes (pipeline/losses/zero_shot.py)
    initialization: Literal["chance", "he_normal"] = "chance"


class Koleo(Strict):
    """Distance of each embedding to its nearest neighbour (KoLeo, IRT eq. 5)."""

    module: ClassVar[str] = "unseen.losses.koleo:Koleo"


class Diversity(Strict):
    """Mean absolute cosine of different prototypes (CRT sec. 3.2)."""

    module: ClassVar[str] = "unseen.losses.diversity:Diversity"


class Consistency(Strict):
    """Mean absolute difference of the similarities in two sets of embeddings (CRT eq. 5)."""

    module: ClassVar[str] = "unseen.losses.consistency:Consistency"


# Terms beside the loss, by name.
TERMS: dict[str, type[Strict]] = {
    "zero_shot": ZeroShotLoss,
    "koleo": Koleo,
    "diversity": Diversity,
    "consistency": Consistency,
}
