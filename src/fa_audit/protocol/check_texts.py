"""The words of the checks and of the credit metrics, by their names in `fa_audit.protocol.checks`.

No number depends on them.
"""

from __future__ import annotations

from typing import Any

OF_CHECKS: dict[str, dict[str, Any]] = {
    "scale": {
        "label": "D1 / (a)",
        "title": "scale stability",
        "short": "Growth",
        "quantity": "largest growth of the states in one block",
        "formula": "largest median ||h_l+1|| / median ||h_l||",
        "axis": "growth of median $\\|h_l\\|$ in a block",
        "source": "paper; there every limit from 12 to 693 decides alike",
        "fine": "the blocks keep the size of the states",
        "finding": "a block inflates the states",
        "causes": {
            "vanished state": "a state has length 0, and every growth from there is infinite"
        },
        "advice": {
            "vanished state": "Look for dead units, or blocks of zeros, before that state.",
            "": "Retrain with a residual penalty (lambda times the mean of ||f_l||^2, what a block adds, in the loss of"
            " every block; in a configuration dfa+penalty1e-2).",
        },
    },
    "reference": {
        "label": "D2 / (b)",
        "title": "reference validity",
        "short": "Reference",
        "quantity": "median norm of the last gradient",
        "formula": "median ||g_L||, mean loss of 128 samples",
        "axis": "median $\\|g_L\\|$",
        "source": "paper; there every limit from 4.2e-9 to 1.0e-4",
        "fine": "the true gradient at the last state has not vanished",
        "finding": "the true gradient at the last state has vanished",
        "causes": {
            "saturated loss": "the loss is almost zero, and so is the true gradient, which is not a collapse"
        },
        "advice": {
            "collapsed reference": "Quote no cosine with it: that compares your credit with rounding noise.",
            "saturated loss": "Audit an earlier epoch.",
        },
    },
    "stability": {
        "label": "(c)",
        "title": "cross-batch stability",
        "short": "Stability",
        "quantity": "mean cosine between batches",
        "formula": "mean cosine of two batches' mean gradients",
        "axis": "mean cosine of batch gradients",
        "source": "paper; there no limit separates",
        "fine": "the mean gradients of batches differ",
        "finding": "the mean gradients of all batches share a direction",
        "advice": {
            "": "Report no alignment with the gradient as evidence of learning. Healthy networks do so, too, where mean"
            " predictions differ from class frequencies."
        },
        "when_open": "Audit with 8 or more batches, none of which has a mean gradient of 0.",
    },
    "depth": {
        "label": "D3 / (d)",
        "title": "depth utility",
        "short": "Depth utility",
        "quantity": "the same network with frozen blocks",
        "formula": "accuracy minus own frozen, points",
        "axis": "margin, points",
        "source": "paper, which calls it the least robust",
        "fine": "trained blocks help",
        "finding": "training the blocks adds too little or nothing",
        "when_open": "Train the same network with its blocks frozen at initialisation, and give its accuracy and your"
        " own, on the whole test set.",
    },
    "depth_strict": {
        "label": "D3-strict",
        "title": "margin over bp+frozen",
        "short": "Strict margin",
        "quantity": "bp+frozen",
        "formula": "accuracy minus bp+frozen, points",
        "axis": "strict margin, points",
        "source": "ours, as D3; decides no verdict",
        "fine": "the network beats frozen blocks under backpropagation",
        "finding": "frozen blocks under backpropagation do about as well or better",
    },
}
OF_CREDITS: dict[str, dict[str, Any]] = {
    "cosine": {
        "label": "the cosine",
        "quantity": "mean cosine of credit and gradient in the blocks after the first",
        "fine": "the credits align with the gradient more than fresh feedback does",
        "finding": "the credits align with the gradient no more than fresh feedback does",
        "bound": "fresh feedback: up to",
        "verb": "is not above what fresh feedback reaches",
    },
    "rho": {
        "label": "rho",
        "quantity": "mean rho, the correlation of predicted and true changes of the loss, in the blocks after the"
        " first",
        "fine": "the credits predict how the loss changes, better than random ones",
        "finding": "the credits predict how the loss changes no better than random ones",
        "bound": "random credits: up to",
        "verb": "is not above what random credits reach",
    },
    "nudging": {
        "label": "nudging",
        "quantity": "mean change of the loss, in nats, after a step in the blocks after the first",
        "fine": "a small step against the credits lowers the loss",
        "finding": "a small step against the credits does not lower the loss",
        "verb": "is not negative",
    },
}
