"""Studies of several trainings: ensembles of folds, sweeps over recipe fields."""
