"""Figures of the report as inline SVG, one module per section that has figures."""
