"""Layers of the form that BioTorch and LightOn's TinyDFA have, for recipes where these are not
installed.
"""

import importlib
import sys
import types

import torch
from test_own_networks import Feedback
from torch import nn


class Linear(nn.Linear):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.weight_backward = nn.Parameter(torch.randn(outputs, inputs), requires_grad=False)

    def forward(self, x):
        return Feedback.apply(x, self.weight, self.bias, self.weight_backward)


class _Sent(torch.autograd.Function):
    """The identity; its backward pass projects the error to every layer and runs their backward
    passes.
    """

    @staticmethod
    def forward(ctx, x, top):
        ctx.top = top
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        if not ctx.top.no_training:
            for layer in ctx.top.dfa_layers:
                point = layer.feedback_points
                point.backward(g @ ctx.top.feedback_matrix[:, : point.shape[1]].to(g))
        return g, None


class DFALayer(nn.Module):
    def __init__(self, passthrough=False):
        super().__init__()
        self.passthrough, self.feedback_points, self.feedback_shape = passthrough, None, None

    def forward(self, x):
        self.feedback_shape = x.shape
        if x.requires_grad:
            self.feedback_points = x
        return x if self.passthrough else x.detach().requires_grad_()


class DFA(nn.Module):
    """Draws its feedback in its first pass, by the widths of the states that it has seen."""

    def __init__(self, dfa_layers, no_training=False):
        super().__init__()
        self.dfa_layers, self.no_training, self.feedback_matrix = dfa_layers, no_training, None

    def forward(self, x):
        if self.feedback_matrix is None and not self.no_training:
            widest = max(layer.feedback_shape[1] for layer in self.dfa_layers)
            self.feedback_matrix = torch.rand(x.shape[1], widest) * 2 - 1
        return _Sent.apply(x, self)


STAND_INS = {
    "biotorch.layers.fa.linear": {"Linear": Linear},
    "tinydfa": {"DFA": DFA, "DFALayer": DFALayer},
}


def stand_in(monkeypatch):
    """Let the packages of `STAND_INS` that are not installed be imported."""
    for name, members in STAND_INS.items():
        try:
            importlib.import_module(name)
        except ImportError:
            path = name.split(".")
            for end in range(1, len(path)):
                monkeypatch.setitem(
                    sys.modules, ".".join(path[:end]), types.ModuleType(path[end - 1])
                )
            module = types.ModuleType(name)
            vars(module).update(members)
            monkeypatch.setitem(sys.modules, name, module)
