"""unseen: deep metric learning evaluated on classes that were not seen in training. This package is the
command line; package `pipeline` contains the implementation."""

from importlib.metadata import version

__version__ = version("unseen")
