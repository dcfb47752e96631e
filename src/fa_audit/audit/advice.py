"""Say what to do about the outcome of every check."""

from __future__ import annotations

from collections.abc import Iterator

from fa_audit.audit.verdicts import Checks
from fa_audit.core.thresholds import CHECK_LABELS

FIRED = {
    "scale": "The residual stream explodes: report state norms beside the accuracy, and retrain with a residual"
    " penalty (for example dfa+penalty1e-2) before you claim anything about the blocks.",
    "collapsed reference": "The true gradient at the top has vanished with the exploding state: do not quote cosines"
    " with it, for they compare your credit with rounding noise.",
    "saturated loss": "The true gradient is tiny because the loss is almost zero: measure alignment at an earlier"
    " epoch instead.",
    "stability": "The mean gradient points the same way in every batch, whatever the data: an alignment with it says"
    " nothing about learning, so do not report one.",
    "depth": "Training the blocks adds too little to training the embedding alone: report the frozen baseline beside"
    " your accuracy, and do not call the network a deep learner.",
    "depth_strict": "Frozen blocks under backpropagation come close to your accuracy, or beat it: claim no advantage"
    " over training just the embedding.",
    "finite": "A state, gradient or logit is NaN or infinite: lower the learning rate and train again, since no other"
    " number of this audit can be trusted.",
}
OPEN = {
    "stability": "The cross-batch stability is not evaluated: audit with 8 or more evaluation batches, none"
    " of which has a mean gradient of 0.",
    "depth": "Depth utility is not evaluated: train the same network with its blocks frozen at initialisation, and give"
    " its accuracy and your own, on the whole test set.",
}
NOTHING = "Nothing fired: report the accuracy together with this audit."


def advice(checks: Checks) -> list[str]:
    """Return a sentence for every check that fires, is borderline or could have been evaluated and was not."""
    return [*_sentences(checks)] or [NOTHING]


def _sentences(checks: Checks) -> Iterator[str]:
    if not checks.finite:
        yield FIRED["finite"]
        return
    for name, label in CHECK_LABELS.items():
        check = getattr(checks, name)
        if check.fires:
            # The note of a reference check that fires is its cause, and the two causes ask for different things.
            yield FIRED[check.note if name == "reference" else name]
        elif check.fires is None and name in OPEN:
            yield OPEN[name]
        if check.borderline:
            yield f"{label} is borderline: its 95 % interval contains its limit, so repeat with more samples or seeds."
