"""The generators of pages in docs/ from the code and its data."""
