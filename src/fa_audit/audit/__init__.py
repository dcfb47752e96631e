"""What the protocol measures on a trained network, and the verdicts that follow."""
