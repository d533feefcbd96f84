"""What never changes a result: errors, files, progress, usable cores, the prologue of a stage.

Stages do not depend on this package: an edit here reruns nothing.
"""
