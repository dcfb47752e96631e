"""A network and its training in plain PyTorch, as an author brings them to an audit: a residual MLP under DFA.

README.md and docs/tutorial.md audit the networks that this file trains. Replace the file by your own code: a model
whose states a `HookPoint` marks, its frozen twin, and about ten batches of the test set.
"""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

from fa_audit import HookPoint

WIDTH, DEPTH, CLASSES, TRAINING = 128, 4, 10, 997

digits = load_digits()
inputs = torch.tensor(digits.data, dtype=torch.float32) / 16  # (1797, 64)
labels = torch.tensor(digits.target)
order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
inputs, labels = inputs[order], labels[order]
test_batches = list(
    zip(inputs[TRAINING:].split(100), labels[TRAINING:].split(100))
)  # eight of 100 samples


class Block(nn.Module):
    """Residual block ``h + W2 GELU(W1 LN(h))`` of states ``(B, d)``."""

    def __init__(self) -> None:
        super().__init__()
        self.change = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH)
        )

    def forward(self, h: Tensor) -> Tensor:
        return h + self.change(h)


class ResidualMLP(nn.Module):
    """A residual MLP that marks its states and holds the feedback matrices of DFA."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(inputs.shape[1], WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES))
        self.hook = HookPoint()  # returns its input
        self.register_buffer(
            "feedback", torch.randn(DEPTH + 1, CLASSES, WIDTH)
        )  # of the embedding and every block

    def forward(self, x: Tensor) -> Tensor:
        h = self.hook(self.embed(x))
        for block in self.blocks:
            h = self.hook(block(h))
        return self.head(h)


def train(frozen: bool = False, epochs: int = 15) -> ResidualMLP:
    """Train by direct feedback alignment; with `frozen`, the blocks stay as they were initialised."""
    torch.manual_seed(0)
    model = ResidualMLP()
    model.blocks.requires_grad_(not frozen)
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    for _ in range(epochs):
        for batch in torch.randperm(TRAINING).split(64):
            optimiser.zero_grad()
            local_losses(model, inputs[batch], labels[batch]).backward()
            optimiser.step()
    return model


def local_losses(model: ResidualMLP, x: Tensor, y: Tensor) -> Tensor:
    """Sum the head's cross-entropy and every other part's ``<output, credit>``; each term trains its own part only."""
    outputs = [model.embed(x)]
    for block in model.blocks:
        outputs.append(block(outputs[-1].detach()))
    logits = model.head(outputs[-1].detach())
    error = logits.detach().softmax(dim=-1) - F.one_hot(y, CLASSES)
    credits = F.normalize(error @ model.feedback, dim=-1) * WIDTH**0.5  # (L + 1, B, d)
    return F.cross_entropy(logits, y) + (torch.stack(outputs) * credits).mean(dim=1).sum()


def accuracy(model: nn.Module) -> float:
    """Return the fraction of test samples that are classified correctly."""
    with torch.no_grad():
        return float((model(inputs[TRAINING:]).argmax(dim=-1) == labels[TRAINING:]).float().mean())
