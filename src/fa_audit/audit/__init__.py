"""Measure a trained network by the protocol, and turn the evidence into verdicts."""
