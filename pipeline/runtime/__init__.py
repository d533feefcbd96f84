"""Code that does not affect results: errors, files, progress, usable cores, the start-up of a stage.

Stages do not depend on this package but on `device`: an edit elsewhere reruns nothing.
"""
