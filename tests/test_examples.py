"""The `>>>` examples of public functions run and print what they say."""

import doctest
import importlib

import pytest

MODULES = (
    "fa_audit.audit.diagnose",
    "fa_audit.networks.contract",
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_print_what_they_say(name):
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted > 0 and found.failed == 0
