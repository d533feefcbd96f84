"""Whether a stage runs the code that stage `resolve` recorded.

`resolve` writes the digests of the code of each stage into its resolved file, on which the stage depends. A
run takes hours. If a module changes meanwhile, by an edit or by `git checkout`, a later stage would compute
with other code than its resolved file names, and DVC would store the result under the recorded code.
"""

from collections.abc import Mapping
from pathlib import Path

from unseen.runtime.code import code_of
from unseen.runtime.errors import UserError

_PACKAGE = Path(__file__).resolve().parents[1]
_recorded: dict[str, str] = {}


def require_recorded(digests: Mapping[str, str]) -> None:
    """Raises UserError if the code of this stage, whose modules are imported, differs from `digests`, with
    which `require_unchanged` compares it again."""
    _recorded.update(digests)
    require_unchanged()


def require_unchanged() -> None:
    """Raises UserError if the code of this stage differs from that of its start. DVC does not record the
    outputs of a stage that fails here."""
    differing = code_of(_PACKAGE, Path()).differing(_recorded)
    if differing:
        more = f" and {len(differing) - 1} more" if len(differing) > 1 else ""
        raise UserError(
            f"The code changed during the run: {differing[0]}{more} is not what stage `resolve` recorded.",
            "Run the same command again. It reads the code first, and computes again what depends on it.",
        )
