"""Requested runs: specifications, grids, configurations, costs, published numbers."""
