"""The report as one HTML file: `runs` has the content, `render` and page.html the form."""
