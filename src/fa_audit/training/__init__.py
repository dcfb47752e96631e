"""Train networks, store them, and resume interrupted trainings."""
