"""The report as one HTML file: `runs` has its content, `render` and page.html its form."""
