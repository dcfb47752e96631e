"""The report as one HTML file: its runs (runs), and how they are printed (render, page.html)."""
