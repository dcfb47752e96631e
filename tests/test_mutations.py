"""The mutations of `tests/mutations.py` still fit the sources that they break."""

from mutations import problems


def test_every_mutation_applies_to_exactly_one_place():
    assert problems() == []
