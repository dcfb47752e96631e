r"""What every method states of itself for a paper: its credit as a line of LaTeX, and how its feedback is drawn.

It stands beside the methods' files, whose edits make trainings stale, and no training imports it. A method of one's own
assigns `equation` (text), `latex` (the same for LaTeX, without dollar signs), `feedback` and `drawn` in its class, as
literals; what it does not assign is reported as not stated. Imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fa_audit.core.errors import AuditError
from fa_audit.core.registry import entry_of
from fa_audit.core.source import class_literals
from fa_audit.methods import METHODS

NOT_STATED = "not stated by the method"
TOP = r"a_{L-1} = \partial\mathrm{CE}/\partial h_L,\quad a_{l-1} = "
FORMULAS = {  # name -> the credit in LaTeX; distribution, scale and life of the feedback
    "bp": (r"a_l = \partial\mathrm{CE}/\partial h_{l+1}", "none is drawn: the forward weights carry the gradient"),
    "fa": (TOP + r"a_l B_l", "entries N(0, 1/d), standard deviation 1/sqrt(d); drawn once before training, fixed"),
    "dfa": (r"a_l = (p - y)\,B_l^\top", "entries N(0, 1/C), standard deviation 1/sqrt(C); drawn once, fixed"),
    "drtp": (r"a_l = (1/C - y)\,B_l^\top", "entries N(0, 1/C), standard deviation 1/sqrt(C); drawn once, fixed"),
    "usf": (
        TOP + r"a_l\,J_l[W \to \mathrm{sign}(W)/\sqrt{\mathrm{fan\ in}}]",
        "none is drawn: signs of the present weights, all of magnitude 1/sqrt(fan in)",
    ),
    "brsf": (
        TOP + r"a_l\,J_l[W \to M_t \circ \mathrm{sign}(W)]",
        "magnitudes |N(0, 1/fan in)|, fresh for every minibatch; signs of the present weights",
    ),
    "frsf": (
        TOP + r"a_l\,J_l[W \to M \circ \mathrm{sign}(W)]",
        "magnitudes |N(0, 1/fan in)|, drawn once, fixed; signs of the present weights",
    ),
    "kolen_pollack": (
        TOP + r"a_l\,J_l[W \to B],\quad \mathrm{d}B = \mathrm{d}W",
        "entries N(0, 1/fan in) at first; learned: every step adds the forward weight's update, with the same decay",
    ),
    "ep": (
        r"a_l = -(h_{l+1}^{\mathrm{nudged}} - h_{l+1}^{\mathrm{free}})/\beta",
        "none is drawn: states relax through the forward weights",
    ),
    "state_bridge": (
        r"a_l = \partial\,\mathrm{CE}(\mathrm{head}(G(\mathrm{LN}(h_l), t_l, s)), y)/\partial h_l",
        "a learned net G, initialised as torch's linear layers are, trained with the network",
    ),
    "credit_bridge": (
        r"a_l = \partial V(\mathrm{LN}(h_l), t_l, s)/\partial h_l",
        "a learned net V, initialised as torch's linear layers are, trained with the network; in the warm-up DFA's"
        " matrices, N(0, 1/C), drawn once",
    ),
}
SYMBOLS = (
    "h_l: input of block l, h_L: of the head; p: softmax of the logits, y: one-hot label, s = p - y, t_l = l/L; CE:"
    " cross-entropy; d: width, C: classes; J_l[W -> B]: Jacobian of block l with its weights W replaced by B"
)


@dataclass(frozen=True)
class Statement:
    """What a method states of itself; empty texts where it does not."""

    equation: str
    latex: str
    feedback: str
    drawn: str
    source: str
    constants: dict[str, Any]
    draws: bool  # whether its feedback is random


def stated(method: str) -> Statement:
    """Return what a method states: a registered one, or one of one's own whose file is found, else nothing."""
    general = class_literals("fa_audit.methods.method:Method")
    try:
        own = general | class_literals(entry_of("method", METHODS, method))
    except AuditError:  # the file of somebody's own method is not here
        own = general
    latex, drawn = FORMULAS.get(method, (own.get("latex", ""), own.get("drawn", "")))
    kept = method in METHODS or own["feedback"] != general["feedback"]
    constants = {name: value for name, value in own.items() if name not in {*general, "latex", "drawn"}}
    return Statement(
        own["equation"], latex, own["feedback"] if kept else "", drawn, own["source"], constants, own["random_feedback"]
    )
