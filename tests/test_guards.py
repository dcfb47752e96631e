"""Nothing wrong is believed: what a method, a file or a model says is compared with what it does."""

from dataclasses import replace

import pytest
import torch
from test_conformance import with_credits, with_parts

from fa_audit.core.errors import AuditError
from fa_audit.methods.bp import BP
from fa_audit.methods.dfa import DFA
from fa_audit.methods.ep import EP
from fa_audit.training.loop import train

# --- the engine ------------------------------------------------------------------------------------------------------

REFUSED = {
    r"\(16, 1\) of torch.float32 for the embedding": with_credits(DFA, lambda a: a[:, :1]),
    "2 for 3 blocks": with_parts(DFA, lambda c: replace(c, blocks=c.blocks[1:])),
    r"\(16, 8\) of torch.float16 for the embedding": with_credits(DFA, torch.Tensor.half),
    "NaN or infinite for block 0": with_parts(BP, lambda c: replace(c, blocks=(c.blocks[0] / 0, *c.blocks[1:]))),
    "tuple, not Credits": with_parts(DFA, lambda c: c.blocks),
    r"with an objective of shape \(16,\)": with_parts(EP, lambda c: replace(c, objective=c.objective.expand(16))),
}


@pytest.mark.parametrize("words", REFUSED)
def test_the_engine_refuses_credits_that_it_would_misread(make_spec, dataset, words):
    with pytest.raises(AuditError, match=f"method 'mine': on the first minibatch its credits are {words}.*expected 3"):
        train(make_spec("mine"), dataset, method=REFUSED[words]())
