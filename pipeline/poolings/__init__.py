"""Poolings of a feature map into one vector, one per file, which starts with the formula."""
