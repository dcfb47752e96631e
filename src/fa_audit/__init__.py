"""Honest evaluation of feedback alignment and other local-credit learning."""

__version__ = "0.1.0"
