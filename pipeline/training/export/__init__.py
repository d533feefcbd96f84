"""Embeddings of a trained model, written as embedding files (format: pipeline/data/embeddings.py)."""
