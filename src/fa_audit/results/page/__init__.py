"""The report as one HTML file: `runs` collects the content, `render` fills it into page.html."""
