"""Search over a folder of photos, and its service."""
