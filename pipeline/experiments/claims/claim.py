"""The form of a claim: a statement of a paper, two arms that differ in what it is about, a metric.

`claims.yaml` contains `networks`, `setting` (changes of all arms), `arms` (a published method and changes of
its recipe: `{like: gsp, field: value}`) and `claims`. A claim compares arm `second` with arm `first`.
"""

from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from unseen.config.document import Document
from unseen.config.inputs import digest
from unseen.runtime.errors import UserError
from unseen.runtime.settings import Count, Positive, Scalar, Strict

PATH = Path(__file__).with_name("claims.yaml")
# Of each class, so that classes can be resampled: means over its test images.
OF_CLASSES = ("map_at_r", "recall_at_1")
# The other metrics are of a training as a whole. The last one is a logarithm, so that a difference is the
# logarithm of a ratio.
Metric = Literal[
    "map_at_r",
    "recall_at_1",
    "embedding_density",
    "spectral_decay",
    "direction_covariance",
    "log_backward_seconds",
]


class NetworkOfClaims(Strict):
    """A pretrained network."""

    name: str  # of timm, with the tag of its weights
    size: Count  # pixels per side
    statistics: str | None = None  # of a file of weights (pipeline/frozen/network.py)
    arguments: dict[str, Scalar] = Field(default={})


class Claim(Strict):
    """A claim of a paper."""

    paper: Literal["crt", "multihead", "gsp", "irt"]
    item: str  # where the paper makes it: `table 6`
    statement: str
    first: str  # arm
    second: str  # arm
    metric: Metric = "map_at_r"
    # what the claim expects of second - first. equal: within +- `margin`
    expects: Literal["more", "less", "equal"] = "more"
    margin: Positive | None = None
    networks: tuple[str, ...] = Field(min_length=1)


class Claims(Strict):
    """The content of claims.yaml."""

    networks: dict[str, NetworkOfClaims]
    setting: dict[str, Any]
    arms: dict[str, dict[str, Any]]
    claims: dict[str, Claim]

    def arm(self, name: str) -> tuple[str, dict[str, Any]]:
        """The published method of an arm, and dotted field -> value."""
        changes = {key: value for key, value in self.arms[name].items() if key != "like"}
        return str(self.arms[name]["like"]), self.setting | changes

    def definition(self, name: str) -> str:
        """A digest of what determines the result of a claim: its arms, metric and networks, without its
        words."""
        claim = self.claims[name]
        networks = {key: self.networks[key].model_dump(mode="json") for key in claim.networks}
        value = [
            self.arm(claim.first),
            self.arm(claim.second),
            claim.metric,
            claim.expects,
            claim.margin,
            networks,
        ]
        return digest(value)


@cache
def claims(path: Path = PATH) -> Claims:
    """The claims of a file. Raises UserError for an unknown key, arm or network."""
    document = Document(path, f"pipeline/experiments/claims/{path.name}" if path == PATH else None)
    result = document.parsed(Claims, "Correct the claim.")
    for name, claim in result.claims.items():
        where = f"{document.label}:{document.line(f'claims.{name}')}"
        for arm in (claim.first, claim.second):
            if "like" not in result.arms.get(arm, {}):
                raise UserError(f"{where}: {name}: there is no arm {arm} with `like`.", "Add it to `arms`.")
        if unknown := set(claim.networks) - result.networks.keys():
            raise UserError(f"{where}: {name}: unknown network {min(unknown)}.", "Add it to `networks`.")
        if (claim.expects == "equal") != (claim.margin is not None):
            raise UserError(
                f"{where}: {name}: `margin` is required with `expects: equal`, and not allowed otherwise.",
                "Add or remove `margin`.",
            )
    return result
