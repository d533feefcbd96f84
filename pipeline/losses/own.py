"""A loss that is an object of the program: `unseen.train(..., loss=module)`. A recipe names it by class and
digest."""

import copy
import hashlib
import inspect
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from unseen.runtime.device.precision import full_precision, without_autocast

_objects: dict[str, nn.Module] = {}


class OwnLoss(nn.Module):
    """A copy of the object with this digest. of: its class. A process that only loads a model has no object;
    no embedding depends on it, so files of weights do not contain it."""

    training_only = True

    def __init__(self, of: str, digest: str) -> None:
        super().__init__()
        self.of, self.loss = of, copy.deepcopy(_objects.get(digest))

    def forward(
        self, embeddings: Float[Tensor, "B D"], labels: Int[Tensor, "B"], *references: Tensor
    ) -> Float[Tensor, ""]:
        """The value in float32 at least. references: of a cross-batch memory (PairLoss.forward)."""
        if self.loss is None:
            raise RuntimeError(f"the loss {self.of} was an object of the program that trained the model")
        with without_autocast(embeddings):
            value: Tensor = self.loss(full_precision(embeddings), labels, *references)
            return value


class OwnProxyLoss(OwnLoss):
    """One whose parameters are vectors of the classes: the optimizer's group `proxies`."""

    inputs = "proxies"


def own_loss(loss: nn.Module) -> dict[str, Any]:
    """The block `loss` of a recipe. Its digest covers the code of the classes, their plain attributes and the
    state. It is a proxy loss if it has parameters, unless it states `inputs`.

    Raises ValueError for a loss that compares images with neither images of a batch nor class vectors.
    """
    inputs = getattr(loss, "inputs", "proxies" if any(True for _ in loss.parameters()) else "pairs")
    if inputs not in ("pairs", "proxies"):
        raise ValueError(f"a loss with inputs = {inputs!r} has no call (embeddings, labels)")
    facts = hashlib.sha256()
    for name, module in loss.named_modules():
        plain = {key: value for key, value in vars(module).items() if isinstance(value, (int, float, str))}
        plain.pop("training")
        facts.update(f"{name} {_code(type(module))} {sorted(plain.items())}".encode())
    for name, value in loss.state_dict().items():
        facts.update(
            f"{name} {tuple(value.shape)} ".encode() + value.detach().cpu().double().numpy().tobytes()
        )
    digest = facts.hexdigest()
    _objects[digest] = loss
    kind = OwnProxyLoss if inputs == "proxies" else OwnLoss
    of = f"{type(loss).__module__}:{type(loss).__qualname__}"
    return {"module": f"{__name__}:{kind.__name__}", "of": of, "digest": digest}


def _code(kind: type) -> str:
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):  # typed in a session that keeps no source
        return f"{kind.__module__}.{kind.__qualname__}"
