"""Basics that every other package uses: errors, files, registries, random numbers, vectors."""
