"""Say what to do about the outcome of every check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fa_audit.audit.verdicts import UNTRUE, Checks
from fa_audit.core.thresholds import CHECK_LABELS

FIRED = {
    "scale": "The residual stream explodes: report state norms beside the accuracy, and retrain with a residual"
    " penalty (lambda times the mean of ||f_l||^2, what a block adds, in every block's loss; in a configuration"
    " dfa+penalty1e-2) before you claim anything about the blocks.",
    "collapsed reference": "The true gradient at the top has vanished with the exploding state: do not quote cosines"
    " with it, for they compare your credit with rounding noise.",
    "saturated loss": "The true gradient is tiny because the loss is almost zero: measure alignment at an earlier"
    " epoch instead.",
    "stability": "The mean gradient points the same way in every batch: report no alignment with it as evidence of"
    " learning. Healthy networks do so, too, where mean predictions differ from class frequencies.",
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
OWN_BACKWARD = (
    "The backward pass is the model's own: to have cosines and (c), audit the same weights in a model of torch's own"
    " layers, and give what the backward pass computes as credits (docs/recipes.md)."
)
NOTHING = "Nothing fired: report the accuracy together with this audit."


def advice(checks: Checks, untrue: Sequence[int] = ()) -> list[str]:
    """Return a sentence for every check that fires, is borderline or could have been evaluated and was not.

    Args:
        untrue: the states whose gradient is not the derivative of the loss.
    """
    return [*([OWN_BACKWARD] if untrue else []), *_sentences(checks)] or [NOTHING]


def _sentences(checks: Checks) -> Iterator[str]:
    if not checks.finite:
        yield FIRED["finite"]
        return
    for name, label in CHECK_LABELS.items():
        check = getattr(checks, name)
        if check.fires:
            # The note of a reference check that fires is its cause, and the two causes ask for different things.
            yield FIRED[check.note if name == "reference" else name]
        elif check.fires is None and name in OPEN and check.note != UNTRUE:
            yield OPEN[name]
        if check.borderline:
            yield f"{label} is borderline: its 95 % interval contains its limit, so repeat with more samples or seeds."
