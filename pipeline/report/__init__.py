"""The report: numbers, curves and galleries of a run on one HTML page that opens offline."""
