"""Retrieval metrics by definition: exact search, ties resolved, self removed by id, class-bootstrap intervals. numpy and FAISS, no torch."""
