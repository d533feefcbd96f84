"""The reduction that a block of params.yaml defines, learned from the exported embeddings of the train
images."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from unseen.data.embeddings import read
from unseen.evaluation.reduction import Reduction, fit_pca, fit_whitening
from unseen.evaluation.settings import Reduce
from unseen.runtime.errors import UserError

PAIRS = "pairs.parquet"


def learned_reduction(settings: Reduce, folder: Path, key: str) -> Reduction:
    """The reduction of the train embeddings in `folder`. key: of the settings in params.yaml.

    Raises UserError for a missing or damaged file, for whitening by pairs without a table of pairs, and as
    `fit_pca` and `fit_whitening` do.
    """
    train = read(folder / "train.arrow")
    if settings.whiten != "pairs":
        return fit_pca(train.embedding, settings.dim, settings.whiten == "pca")
    if not (folder / PAIRS).is_file():
        raise UserError(
            f"{folder} has no table of matching images ({PAIRS}).",
            f"Set {key}.whiten to none or pca for a data set without pairs.",
        )
    table = pq.read_table(folder / PAIRS, filters=[("split", "=", "train")])
    pairs = np.stack([table[side].to_numpy() for side in ("query", "positive")], axis=1)
    return fit_whitening(train.embedding, np.searchsorted(train.row_id, pairs), settings.dim)
