"""The reality-check protocol (MLRC): folds x repeats trainings of a method, each validated on its own fold,
and the ensembles of the trained models."""
