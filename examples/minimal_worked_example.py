"""Audit a network of your own: train it, train its frozen baselines in the same way, and print the report.

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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cifar10", type=Path, metavar="FOLDER", help="use CIFAR-10 from this folder"
    )
    folder = parser.parse_args().cifar10
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    set_numerics(threads=1)
    report = audited(
        cifar10(folder) if folder else digits(Path()), batch_size=128 if folder else 32
    )
    print(report)


def audited(dataset: Dataset, batch_size: int) -> DiagnosticReport:
    """Train the network and its two frozen baselines with equal budgets; return the audit's report."""
    spec = RunSpec(
        dataset=dataset.name,
        architecture="resmlp",
        architecture_options=(
            ("depth", DEPTH),
            ("residual", True),
            ("terminal_norm", True),
            ("width", 128),
        ),
        method=METHOD,
        epochs=5,
        batch_size=batch_size,
    )
    ours = trained("the network itself", spec, dataset)
    own_frozen = trained("frozen blocks, same method", replace(spec, frozen_blocks=DEPTH), dataset)
    bp_frozen = trained(
        "frozen blocks, backpropagation", replace(spec, method="bp", frozen_blocks=DEPTH), dataset
    )
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
    """Log the title of a run, and train it."""
    log.info("%s: %s", title, spec.method)
    return train(spec, dataset)


if __name__ == "__main__":
    main()
