"""The protocol: what is measured, which checks look at it, and what follows. Imports no torch."""
