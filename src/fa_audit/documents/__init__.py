"""The classes of tables and reports, and functions that format them."""
