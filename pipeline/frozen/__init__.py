"""Heads on cached feature maps: the poolings, projections and losses of all methods on a frozen network.

The network runs once for each photo and its maps are kept (maps.py). A method whose backbone reads the cached
maps (backbone.py) is then trained by the usual training step (train.py), at the cost of its head alone:
thousands of steps take minutes on a laptop. Images are not augmented.
"""
