"""Code that does not affect results: errors, files, progress, usable cores, the start-up of a stage.

Stages do not depend on this package: an edit here reruns nothing.
"""
