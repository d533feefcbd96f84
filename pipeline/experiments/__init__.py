"""Experiments: what is trained, compared and stated. Studies (rows of tables of papers), sweeps, folds of the
MLRC protocol, claims, the ladder on labelled photos, the plan of a run, and printed numbers."""
