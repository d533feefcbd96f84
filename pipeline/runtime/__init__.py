"""What surrounds a run and never changes its result: errors, files, progress, the prologue of a stage, the cluster connection.

Stages do not list this package among their dependencies: an edit here re-runs nothing.
"""
