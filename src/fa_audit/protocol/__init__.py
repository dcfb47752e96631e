"""The protocol: evidence, checks, limits, verdicts and sentences. Imports no torch."""
