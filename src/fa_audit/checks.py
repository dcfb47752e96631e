"""How the checks of an audit are called, and on which side of its limit each fires. Imports nothing."""

LETTERS = {"scale": "D1 / (a)", "reference": "D2 / (b)", "stability": "(c)", "depth": "D3 / (d)",
           "depth_strict": "D3-strict"}  # fmt: skip
FIRES_ABOVE = frozenset({"scale", "stability"})  # the others fire below it
