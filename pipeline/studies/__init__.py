"""Several trainings for one question: ensembles of folds, sweeps over recipe fields."""
