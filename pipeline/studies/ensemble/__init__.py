"""The reality-check protocol (MLRC): folds x repeats trainings of a method, each judged on its own fold, and
the ensembles of what they become."""
