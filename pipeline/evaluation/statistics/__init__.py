"""Intervals of metrics and tests of differences between methods."""
