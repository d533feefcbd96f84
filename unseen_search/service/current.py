"""The catalog that answers now."""

import threading
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from unseen.evaluation.unknown import Threshold
from unseen.runtime.digest import sha256_of
from unseen.runtime.errors import UserError
from unseen.runtime.names import say
from unseen_search.catalog.catalog import Catalog
from unseen_search.catalog.files import ABOUT
from unseen_search.service.settings import ServiceSettings

if TYPE_CHECKING:
    from unseen_search.catalog.regions import Explainer


@dataclass(frozen=True)
class State:
    """A loaded catalog, its threshold, and the first digits of the sha256 of its catalog.json."""

    catalog: Catalog
    threshold: Threshold | None
    fingerprint: str

    @cached_property
    def explainer(self) -> "Explainer":
        """What explains similarities, with the model in PyTorch."""
        from unseen_search.catalog.regions import Explainer  # imports PyTorch

        return Explainer(self.catalog.embedder)


class Current:
    """The catalog in a directory, which is loaded again after `unseen index` has replaced it.

    The statement on the threshold of each loaded catalog is written to stderr.

    Raises UserError if the first catalog cannot be loaded, and UncalibratedError for a model without a
    calibrated rate. If a later one cannot, the earlier one answers,
    and one message on stderr names the reason.
    """

    def __init__(self, directory: Path, settings: ServiceSettings) -> None:
        self.directory, self.settings = directory, settings
        self._lock = threading.Lock()
        self._stamp = self._stamp_now()
        self._state = self._load()

    def get(self) -> State:
        """The present catalog."""
        stamp = self._stamp_now()
        if stamp is not None and stamp != self._stamp and self._lock.acquire(blocking=False):
            # Other requests use the earlier catalog while one loads the new one.
            try:
                self._state = self._load()
            except UserError as error:
                say(f"The earlier catalog answers: {error}")
            finally:
                self._stamp = stamp
                self._lock.release()
        return self._state

    def _stamp_now(self) -> tuple[int, int] | None:
        """What changes with catalog.json; None while the directory is exchanged."""
        try:
            status = (self.directory / ABOUT).stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def _load(self) -> State:
        catalog = Catalog(self.directory, verify=True)
        catalog.engine  # noqa: B018  loads the model before the first photo
        threshold = self.settings.asked.threshold(catalog)
        if threshold is not None:
            say(f"{self.directory}: {threshold.sentence()}")
        catalog.rows  # noqa: B018  reads the table before the first photo
        return State(catalog, threshold, sha256_of(self.directory / ABOUT)[:12])
