"""Basics of all other rooms: errors, files, registries, random streams, numerics, vectors."""
