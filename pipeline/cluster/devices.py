"""The GPUs that `train.gpu` (yes, no, auto) allows and that the installed torch can use."""

from typing import TYPE_CHECKING

from unseen.runtime.errors import UserError

if TYPE_CHECKING:
    import torch

    from unseen.cluster.connection import Cluster

_REMEDY = "Install a CUDA build of torch and a driver that it supports, or set train.gpu: no."


def gpus_here(gpu: str) -> int:
    """GPUs of this machine that torch can use and `gpu` allows.

    Raises UserError if `gpu` is yes and there is none.
    """
    import torch

    count = torch.cuda.device_count() if gpu != "no" and torch.cuda.is_available() else 0
    if gpu == "yes" and not count:
        raise UserError(f"train.gpu is yes, and torch {torch.__version__} finds no GPU.", _REMEDY)
    return count


def device_here(gpu: str) -> "torch.device":
    """The device of one training in this process: the first GPU if there is one, else the CPU."""
    import torch

    return torch.device("cuda", 0) if gpus_here(gpu) else torch.device("cpu")


def usable_gpu(gpu: str, cluster: "Cluster") -> str:
    """`gpu`, but no on a private cluster whose GPUs the installed torch cannot use.

    Raises UserError if `gpu` is yes and torch cannot use them.
    """
    import torch

    if not cluster.private or cluster.gpus == 0 or torch.cuda.is_available():
        return gpu
    if gpu == "yes":
        installed = f"the installed torch {torch.__version__}"
        what = f"train.gpu is yes and this machine has {cluster.gpus} GPU, but {installed} cannot use it."
        raise UserError(what, _REMEDY)
    return "no"
