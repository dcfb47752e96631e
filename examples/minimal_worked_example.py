"""Audit a network of your own: train it, train its frozen baselines in the same way, and ask the protocol.

    python examples/minimal_worked_example.py                     # digits, no download
    python examples/minimal_worked_example.py --cifar10 FOLDER    # CIFAR-10 from FOLDER/cifar-10-batches-py

Five epochs of direct feedback alignment are few: the point is the course of an audit, not the accuracy.
Replace `METHOD` by your method's registered name, or give `diagnose` any network that you trained elsewhere.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import sys
from dataclasses import replace
from pathlib import Path

if importlib.util.find_spec("fa_audit") is None:  # run from a clone that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from fa_audit import DiagnosticReport, diagnose
from fa_audit.core.numerics import set_numerics
from fa_audit.data.cifar import cifar10
from fa_audit.data.dataset import Dataset, evaluation_batches, stability_batches
from fa_audit.data.digits import digits
from fa_audit.experiments.spec import RunSpec
from fa_audit.training.loop import Trained, train

METHOD = "dfa"
DEPTH = 4
log = logging.getLogger("example")

ADVICE = {
    "scale": "The residual stream explodes: report state norms beside the accuracy, and retrain with a residual"
    " penalty (for example dfa+penalty1e-2) before you claim anything about the blocks.",
    "collapsed reference": "The true gradient at the top has vanished with the exploding state: do not quote cosines"
    " with it, for they compare your credit with rounding noise.",
    "saturated loss": "The true gradient is tiny because the loss is almost zero: measure alignment at an earlier"
    " epoch instead.",
    "stability": "The mean gradient points the same way in every batch, whatever the data: an alignment with it says"
    " nothing about learning, so do not report one.",
    "depth": "Training the blocks adds less than two points to training the embedding alone: report the frozen baseline"
    " beside your accuracy, and do not call the network a deep learner.",
    "depth_strict": "Frozen blocks under backpropagation come within two points of your accuracy, or beat it: claim no"
    " advantage over training just the embedding.",
    "finite": "A state, gradient or logit is NaN or infinite: lower the learning rate and train again, since no other"
    " number of this audit can be trusted.",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cifar10", type=Path, metavar="FOLDER", help="use CIFAR-10 from this folder")
    folder = parser.parse_args().cifar10
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    set_numerics(threads=1)
    report = audited(cifar10(folder) if folder else digits(Path()), batch_size=128 if folder else 32)
    print(report)
    print("\nWhat to do:")
    for sentence in advice(report) or ["Nothing fired: report the accuracy together with this audit."]:
        print(f"  - {sentence}")


def audited(dataset: Dataset, batch_size: int) -> DiagnosticReport:
    """Train the network and its two frozen baselines on one budget, then compare."""
    spec = RunSpec(
        dataset=dataset.name,
        architecture="resmlp",
        architecture_options=(("depth", DEPTH), ("residual", True), ("terminal_norm", True), ("width", 128)),
        method=METHOD,
        epochs=5,
        batch_size=batch_size,
    )
    ours = trained("the network itself", spec, dataset)
    own_frozen = trained("frozen blocks, same method", replace(spec, frozen_blocks=DEPTH), dataset)
    bp_frozen = trained("frozen blocks, backpropagation", replace(spec, method="bp", frozen_blocks=DEPTH), dataset)
    return diagnose(
        ours.learner.network,
        evaluation_batches(dataset),
        ours.accuracy,
        own_frozen.accuracy,
        method_name=METHOD,
        bp_frozen_acc=bp_frozen.accuracy,
        frozen_baseline_name=f"{METHOD}+frozen",
        test_samples=len(dataset.test_labels),
        stability_batches=stability_batches(dataset),
    )


def trained(title: str, spec: RunSpec, dataset: Dataset) -> Trained:
    """Train one run and say so."""
    log.info("%s: %s", title, spec.method)
    return train(spec, dataset)


def advice(report: DiagnosticReport) -> list[str]:
    """One sentence per finding."""
    checks = report.checks
    keys = [
        name for name in ("scale", "reference", "stability", "depth", "depth_strict") if getattr(checks, name).fires
    ]
    # The note of a reference check that fires is its cause, and the two causes ask for different things.
    named = [checks.reference.note if key == "reference" else key for key in keys]
    return [ADVICE[key] for key in named + ([] if checks.finite else ["finite"])]


if __name__ == "__main__":
    main()
