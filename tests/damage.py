"""Values in the wrong place: what damages a parsed file, drawn by hypothesis."""

import copy

from hypothesis import strategies as st

# No integer that a network could be built with, and yet not fit into memory.
NUMBERS = st.floats() | st.integers(-99, 99) | st.sampled_from([2**63, 10**400])
JUNK = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=8) | st.just("inf"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


def altered(content, place=0.9):
    """Bytes with one bit flipped, at a fraction of their length."""
    position = int(place * len(content))
    return content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :]


def places(value, place=()):
    """Every place in nested lists and mappings."""
    children = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, child in children:
        yield (*place, key)
        yield from places(child, (*place, key))


def replaced(whole, place, value, how="replaced"):
    """A copy with one value replaced, lost, or with another beside it."""
    whole = copy.deepcopy(whole)
    *way, last = place
    parent = whole
    for key in way:
        parent = parent[key]
    if how == "lost":
        del parent[last]
    else:
        parent["extra" if how == "beside" and isinstance(parent, dict) else last] = value
    return whole


def damaged(whole):
    """Copies of a parsed file with one wrong value somewhere."""
    hows = st.sampled_from(["lost", "replaced", "beside"])
    return st.builds(replaced, st.just(whole), st.sampled_from(list(places(whole))), JUNK, hows)
