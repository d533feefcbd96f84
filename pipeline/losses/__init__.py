"""Losses and regularisers, one per file, which starts with the formula."""
