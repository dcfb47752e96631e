"""Audit a trained network: measure it by the protocol and derive its verdicts."""
