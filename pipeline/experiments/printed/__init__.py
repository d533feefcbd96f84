"""The tables of the papers as data: published numbers, their conditions, and the unreliable cells."""

from unseen.experiments.printed.model import (
    PAPERS,
    PLAIN,
    Number,
    Paper,
    Row,
    Table,
    papers,
    published,
    rows,
)

__all__ = ["PAPERS", "PLAIN", "Number", "Paper", "Row", "Table", "papers", "published", "rows"]
