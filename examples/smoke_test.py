"""Audit the demo's stored networks again and compare the verdicts with the known ones.

    make demo && python examples/smoke_test.py [--results FOLDER] [--setting NAME]

Backpropagation must pass. Direct feedback alignment (DFA) must fail: its states explode and its blocks add nothing.
With a residual penalty the states of DFA must not explode, but its blocks must still add nothing.
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

EXPECTED = {"bp": "PASS", "dfa": "FAIL(D1+D3)", "dfa+penalty1e-2": "FAIL(D3)"}
SEED = "seed42"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--results", type=Path, default=Path("results"), help="folder of results (default results)"
    )
    parser.add_argument(
        "--setting", default="demo", help="a setting that has all three runs (default demo)"
    )
    options = parser.parse_args()
    set_numerics(threads=1)
    try:
        reports = {run: audited(options.results, options.setting, run) for run in EXPECTED}
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
    method = run.split("+")[0]
    frozen = {
        name: results / "baselines" / setting / f"{name}+frozen" / f"{SEED}.json"
        for name in {method, "bp"}
    }
    accuracy = accuracy_in(stored / f"{SEED}.json")
    learner = load_checkpoint(existing(stored / f"{SEED}.safetensors"))
    dataset = load_dataset(existing(results / "data" / f"{learner.spec.dataset}.safetensors"))
    return diagnose(
        learner.network,
        evaluation_batches(dataset),
        accuracy,
        accuracy_in(frozen[method]),
        method_name=run,
        bp_frozen_acc=accuracy_in(frozen["bp"]),
        frozen_baseline_name=f"{method}+frozen",
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
    """Print a run's three-check verdict and the expected one; return whether they agree."""
    verdict, expected = report.three_check_verdict, EXPECTED[run]
    said = "ok" if verdict == expected else "NOT AS EXPECTED"
    print(f"{said}: {run}: accuracy {report.headline_acc:.3f}, {verdict} (expected {expected})")
    return verdict == expected


if __name__ == "__main__":
    sys.exit(main())
