"""Exact retrieval metrics and their statistics: ties resolved, self removed by id, intervals. No torch."""
