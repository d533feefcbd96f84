"""Shards, embedding files, decoding, transforms, samplers, splits and loaders. `ingest` writes shards."""
