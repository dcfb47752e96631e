"""Eight questions of a reviewer: what to ask for, and what each answer means. Imports no torch.

docs/reviewers.md and the form of `fa-audit report --questions` are made from them.
"""

from __future__ import annotations

from typing import NamedTuple

from fa_audit.core.thresholds import FLOOR_SAMPLES, DiagnosticThresholds

LIMITS = DiagnosticThresholds().limits


class Question(NamedTuple):
    """A question: the name of the author's answer, its words, what to ask for, and what each answer
    means.
    """

    name: str
    text: str
    ask: str
    means: str


QUESTIONS = (
    Question("frozen", "What does the same network reach with its blocks frozen?",
        "its accuracy on the whole test set, trained alike by the same method, its blocks as initialised",
        f"At least {100 * LIMITS['depth_margin']:g} points below the reported accuracy, interval included: trained"
        " blocks help. Otherwise the accuracy comes from embedding and head. Absent: nothing is known of the blocks."),
    Question("bp_frozen", "What does backpropagation reach with these blocks frozen?",
        "the accuracy of that network, its embedding and head trained by backpropagation",
        "About as much as the method: it does not beat a well-trained embedding. Much more than the answer to"
        " question 1: that baseline may have failed to train."),
    Question("growth", "How much do the states grow in one block?",
        "the median norm of the state after every block, on test samples",
        f"More than {LIMITS['growth']:g} times: the residual stream explodes, and gradients shrink with it."),
    Question("gradient", "Is there a true gradient to compare with?",
        "its median norm at the last state, the samples of the batch, the precision, whether the backward pass is the"
        " derivative of the forward pass; the cosine between the mean gradients of 8 or more batches",
        f"Below {LIMITS['reference']:g} for {FLOOR_SAMPLES} samples: cosines compare with rounding noise, unless the"
        " loss is almost zero, which is not a collapse. A custom backward pass: the gradient is not the true one. A"
        f" cosine between batches above {LIMITS['stability']:g}: alignment is not evidence of learning."),
    Question("aggregation", "Of which blocks is the cosine, and how was it averaged?",
        "the cosine of every block with the gradient at its output, over which samples and layers, and its epsilon",
        "A mean over all blocks may come from the first alone. At a block's input even the exact gradient has less than"
        " 1. An epsilon hides small gradients."),
    Question("chance", "Are the credits better than chance?",
        "the cosine that fresh feedback reaches; rho, with that of random credits and of the true gradient; nudging",
        "Within what fresh feedback or random credits reach: no evidence of alignment. Above, with negative"
        " nudging: a small step against the credits lowers the loss."),
    Question("seeds", "How many seeds are there, and what does each fix?",
        "the numbers of every seed, their mean and its 95 % interval",
        "One: the paper may write about that network, not about the method. An interval that contains a limit:"
        " borderline, which supports neither side."),
    Question("selection", "How were the hyperparameters chosen, of the method and of its baselines?",
        "the search of each, its size, and the samples that decided",
        "The test set decided: the accuracies are too high. The baselines were searched less: the margins are too"
        " large."),
)  # fmt: skip
