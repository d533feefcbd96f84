"""Approximate nearest-neighbour search."""
