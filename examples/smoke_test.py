"""Audit the demo's stored networks again and compare the verdicts with the known ones.

    make demo && python examples/smoke_test.py [--results FOLDER] [--setting NAME]

Backpropagation must pass. Direct feedback alignment must fail: its states explode and its blocks add nothing.
Equilibrium propagation must pass: it is less accurate than backpropagation, but its states do not explode, and its
blocks improve the accuracy. The audit shows what an accuracy does not.
Exit status: 0 as expected, 1 another verdict, 2 files missing or damaged.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path

if importlib.util.find_spec("fa_audit") is None:  # run from a clone that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from fa_audit import DiagnosticReport, diagnose
from fa_audit.core.errors import AuditError
from fa_audit.core.numerics import set_numerics
from fa_audit.data.dataset import evaluation_batches, load_dataset, stability_batches
from fa_audit.training.checkpoint import load_checkpoint

SETTINGS = {"bp": "demo", "dfa": "demo", "ep": "demo_costly"}
SEED = "seed42"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--results", type=Path, default=Path("results"), help="folder of results (default results)"
    )
    parser.add_argument(
        "--setting", help="one setting that has all three runs (default demo and demo_costly)"
    )
    options = parser.parse_args()
    set_numerics(threads=1)
    try:
        places = {run: options.setting or setting for run, setting in SETTINGS.items()}
        reports = {run: audited(options.results, setting, run) for run, setting in places.items()}
    except FileNotFoundError as error:
        print(f"{error.filename}: no such file; run `make demo` first.", file=sys.stderr)
        return 2
    except (AuditError, ValueError, KeyError) as error:
        print(f"damaged results: {error}", file=sys.stderr)
        return 2
    outcomes = [compare(run, report) for run, report in reports.items()]
    return 0 if all(outcomes) else 1


def audited(results: Path, setting: str, run: str) -> DiagnosticReport:
    """Audit one stored run against its stored frozen baselines.

    Raises:
        FileNotFoundError: a file that the demo writes is not there.
    """
    stored = results / "checkpoints" / setting / run
    frozen = {
        name: results / "baselines" / setting / f"{name}+frozen" / f"{SEED}.json"
        for name in {run, "bp"}
    }
    accuracy = accuracy_in(stored / f"{SEED}.json")
    learner = load_checkpoint(existing(stored / f"{SEED}.safetensors"))
    dataset = load_dataset(existing(results / "data" / f"{learner.spec.dataset}.safetensors"))
    return diagnose(
        learner.network,
        evaluation_batches(dataset),
        accuracy,
        accuracy_in(frozen[run]),
        method_name=run,
        bp_frozen_acc=accuracy_in(frozen["bp"]),
        frozen_baseline_name=f"{run}+frozen",
        test_samples=len(dataset.test_labels),
        stability_batches=stability_batches(dataset),
    )


def existing(path: Path) -> Path:
    """Return the path; raise `FileNotFoundError` if there is no file."""
    path.stat()
    return path


def accuracy_in(path: Path) -> float:
    """Read the accuracy on the whole test set from a run's JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))["accuracy"]


def compare(run: str, report: DiagnosticReport) -> bool:
    """Print a run's verdicts and the expected ones; return whether they agree."""
    three, four, checks = report.three_check_verdict, report.verdict, report.checks
    if run == "dfa":
        fired = bool(checks.scale.fires and checks.depth.fires)  # (a) and (d)
        expected, agrees = "FAIL, needs walk-back with a and d", three.startswith("FAIL") and fired
    else:
        expected, agrees = "PASS, trustworthy", (three, four) == ("PASS", "trustworthy")
    accuracy = f"accuracy {report.headline_acc:.3f}"
    print(
        f"{'ok' if agrees else 'NOT AS EXPECTED'}: {run}: {accuracy}, {three}, {four} (expected {expected})"
    )
    return agrees


if __name__ == "__main__":
    sys.exit(main())
