"""unseen: deep metric learning evaluated on classes that were not seen in training. The command line; the
code is in pipeline."""

from importlib.metadata import version

__version__ = version("unseen")
