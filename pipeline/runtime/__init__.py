"""Code that does not affect results: errors, files, progress, usable cores, the start-up of a stage.

Stages do not depend on this package but on `device`: an edit elsewhere reruns nothing.
"""

from typing import TYPE_CHECKING

from unseen.runtime.lazy import lazy

if TYPE_CHECKING:
    from unseen.runtime.errors import UserError
    from unseen.runtime.parts import trusted
    from unseen.runtime.settings import Count, NonNegative, Positive, Share, Strict
else:
    __getattr__, __dir__ = lazy(__name__)

__all__ = ["Count", "NonNegative", "Positive", "Share", "Strict", "UserError", "trusted"]
