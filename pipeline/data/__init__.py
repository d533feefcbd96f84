"""Shards, embedding files, decoding, transforms, samplers, class splits and loaders."""
