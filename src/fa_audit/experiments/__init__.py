"""Read what to run: specifications, grids, configurations, costs, published numbers."""
