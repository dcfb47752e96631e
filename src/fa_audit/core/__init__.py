"""Basics that every other room uses: errors, files, registries, random streams, numerics, metrics."""
