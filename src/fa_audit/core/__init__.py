"""Errors, files, registries, random streams, numerics, provenance, metrics, thresholds: what every
room uses.
"""
