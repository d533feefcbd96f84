"""Makes `import torchvision` work if its compiled operators do not fit the installed torch.

torchvision's wheels are built against the CUDA build of torch. Under the CPU build its compiled library is
silently skipped, and the import fails, because torchvision declares shape rules for two operators of that
library:

    RuntimeError: operator torchvision::nms does not exist

timm imports torchvision, so timm fails too. `ensure_torchvision` first tries the plain import. Only after
this error it declares the two schemas without an implementation and imports again. A call of these operators
(box suppression) then still raises torch's error; this project does not call them.
"""

import importlib
import sys

import torch

# The schemas as torchvision 0.28 defines them in C++.
_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_MISSING = "operator torchvision::"

_library: torch.library.Library | None = None  # the schemas exist as long as this object


def ensure_torchvision() -> str:
    """Imports torchvision.

    Returns "native" after a plain import, "declared" after declaring the missing operators.

    Raises the exception of the import if it fails for another reason.
    """
    global _library
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if not (str(error).startswith(_MISSING) and "does not exist" in str(error)):
            raise
    else:
        return "native" if _library is None else "declared"

    # The next import would return the incomplete package.
    for name in [name for name in sys.modules if name == "torchvision" or name.startswith("torchvision.")]:
        del sys.modules[name]
    if _library is None:
        _library = torch.library.Library("torchvision", "FRAGMENT")
        for name, schema in _SCHEMAS.items():
            if not _defined(name):
                _library.define(schema)
    importlib.import_module("torchvision")
    return "declared"


def _defined(name: str) -> bool:
    try:
        torch._C._dispatch_find_schema_or_throw(f"torchvision::{name}", "")
    except RuntimeError:
        return False
    return True
