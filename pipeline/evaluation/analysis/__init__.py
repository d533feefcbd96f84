"""Geometry of embeddings on unseen classes: density, spectrum, similarities, train-test gap. No torch."""
