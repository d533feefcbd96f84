"""Folds of the reality-check protocol (MLRC): contiguous blocks of the train classes.

The train classes 0 .. C-1 are divided at b_i = floor(i C / F), i = 0 .. F. Model k = 1 .. F is validated on
block F - k (0-based, so model 1 on the last) and trained on the others. (Musgrave et al., A Metric Learning
Reality Check, sec. 3; boundaries and order as in the released code of Generalized Sum Pooling,
datasets/dataset_base.py.)
"""

FOLDS = 4  # MLRC


def fold_bounds(classes: int, folds: int = FOLDS) -> tuple[int, ...]:
    """b_0 .. b_F.

    Cars, 98 train classes: 0, 24, 49, 73, 98. Raises ValueError for fewer classes than folds.
    """
    if not 2 <= folds <= classes:
        raise ValueError(f"{classes} classes cannot be divided into {folds} folds")
    return tuple(i * classes // folds for i in range(folds + 1))


def validation_classes(model: int, classes: int, folds: int = FOLDS) -> range:
    """The block of classes that model 1 .. F is validated on; it is trained on the others."""
    if not 1 <= model <= folds:
        raise ValueError(f"models are numbered 1 to {folds}, got {model}")
    bounds = fold_bounds(classes, folds)
    return range(bounds[folds - model], bounds[folds - model + 1])
