"""Tables and reports as values, and their text in every format."""
