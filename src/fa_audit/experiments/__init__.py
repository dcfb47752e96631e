"""What is asked for: specifications, grids, configurations, costs, published numbers."""
