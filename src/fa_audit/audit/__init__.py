"""The audit of a trained network: measurements by the protocol, and the verdicts that follow from
them.
"""
