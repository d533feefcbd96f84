"""The papers' tables as data: what was published for a data set and a recipe, under which conditions, and which cells not to trust."""

from pipeline.published.model import PAPERS, PLAIN, Number, Paper, Row, Table, papers, published, rows

__all__ = ["PAPERS", "PLAIN", "Number", "Paper", "Row", "Table", "papers", "published", "rows"]
