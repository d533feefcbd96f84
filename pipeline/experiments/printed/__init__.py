"""The tables of the papers as data: published numbers, their conditions, and the unreliable cells."""
