"""Nothing wrong is believed: what a method, a file or a model says is compared with what it does."""

from dataclasses import replace

import pytest
import torch

from fa_audit.core.errors import AuditError
from fa_audit.methods.bp import BP
from fa_audit.methods.dfa import DFA
from fa_audit.methods.ep import EP
from fa_audit.training.loop import train


def changed(base, function):
    """A method whose credits are ``function(credits of base)``."""

    class Changed(base):
        def credits(self, network, trace, labels, state):
            return function(super().credits(network, trace, labels, state))

    return Changed


def each(base, function):
    """A method whose credits are those of `base` with `function` applied to each."""
    return changed(base, lambda c: replace(c, blocks=(*map(function, c.blocks),), embedding=function(c.embedding)))


# --- the engine ------------------------------------------------------------------------------------------------------

REFUSED = {
    r"\(16, 1\) of torch.float32 for the embedding": each(DFA, lambda a: a[:, :1]),
    "2 for 3 blocks": changed(DFA, lambda c: replace(c, blocks=c.blocks[1:])),
    r"\(16, 8\) of torch.float16 for the embedding": each(DFA, torch.Tensor.half),
    "NaN or infinite for block 0": changed(BP, lambda c: replace(c, blocks=(c.blocks[0] / 0, *c.blocks[1:]))),
    "tuple, not Credits": changed(DFA, lambda c: c.blocks),
    r"with an objective of shape \(16,\)": changed(EP, lambda c: replace(c, objective=c.objective.expand(16))),
}


@pytest.mark.parametrize("words", REFUSED)
def test_the_engine_refuses_credits_that_it_would_misread(make_spec, dataset, words):
    with pytest.raises(AuditError, match=f"method 'mine': on the first minibatch its credits are {words}.*expected 3"):
        train(make_spec("mine"), dataset, method=REFUSED[words]())
