"""Nearest-neighbour search by cosine: the defined order, exact search, and indexes of several kinds."""
