"""Makes `import torchvision` work where its compiled operators do not fit the installed torch.

torchvision's wheels are built against the CUDA build of torch. Under the CPU build the compiled library is skipped without a word, and
then the import fails, because torchvision declares shape rules for two operators of that library that nobody has defined:

    RuntimeError: operator torchvision::nms does not exist

timm imports torchvision, so timm fails too. `ensure_torchvision` tries the plain import first and leaves a healthy installation alone; only
on that error it declares the two missing schemas, without an implementation, and imports again. Whoever then calls box suppression
still gets torch's error; nothing in this project does.
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

_library: torch.library.Library | None = None  # the schemas live as long as this object


def ensure_torchvision() -> str:
    """Imports torchvision. Returns "native" when the plain import worked, "declared" when the missing operators had to be declared.

    Raises what the import raises if it fails for any other reason.
    """
    global _library
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if not (str(error).startswith(_MISSING) and "does not exist" in str(error)):
            raise
    else:
        return "native" if _library is None else "declared"

    # A half-imported package would be handed out again by the next import.
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
