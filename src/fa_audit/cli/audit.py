"""`fa-audit audit`: audit a checkpoint of this package, or a model of the user's own."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fa_audit.cli.train import add_data_root, data_path
from fa_audit.core.errors import AuditError, first_line, shortened
from fa_audit.core.registry import load

if TYPE_CHECKING:
    from torch import nn

    from fa_audit.networks.states import Description
    from fa_audit.protocol.audit import DiagnosticReport

# Options that apply only to checkpoints, and options that apply only to models.
_OF_CHECKPOINTS = ("method", "architecture")
_OF_MODELS = (
    "accuracy",
    "test_samples",
    "blocks",
    "reads",
    "partial",
    "credits",
    "draw",
    "directions",
    "loss",
)


def audit_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit audit`."""
    add = parser.add_argument
    parser.set_defaults(command=_audit)
    add(
        "checkpoint",
        metavar="NETWORK",
        help="a checkpoint, FILE.safetensors; or my_file:make_model, a function that returns a"
        " model",
    )
    add(
        "--data",
        help="for a checkpoint: a data set's file or name, as in `fa-audit train`; default: the"
        " data set that the checkpoint names, in results/data. For a model: my_file:batches, a list"
        " of (x, labels) or a function that returns it; no default",
    )
    add_data_root(parser)
    add(
        "--frozen",
        metavar="BASELINE",
        help="the method's own frozen baseline: its .json for a checkpoint, its accuracy for a"
        " model; default none: D3 is not evaluated",
    )
    add(
        "--bp-frozen",
        metavar="BASELINE",
        help="BP's frozen baseline: its .json for a checkpoint, its accuracy for a model; default"
        " none: D3-strict is not evaluated",
    )
    for kind in _OF_CHECKPOINTS:
        add(
            f"--{kind}",
            metavar="MODULE:CLASS",
            help=f"class of the checkpoint's {kind}; default: the registered {kind} that the"
            " checkpoint names",
        )
    add(
        "--format",
        choices=("text", "json", "markdown"),
        default="text",
        help="format of the output; default %(default)s",
    )
    add(
        "--details",
        action="store_true",
        help="print the measurements of every layer, too; default: only the report",
    )
    add = parser.add_argument_group("for a user-defined model").add_argument
    add(
        "--accuracy",
        type=float,
        help="the model's accuracy on the whole test set, a fraction; default unknown",
    )
    add(
        "--test-samples",
        type=int,
        metavar="N",
        help="size of the test set, for D3's interval; default the number of samples in the"
        " batches",
    )
    add(
        "--blocks",
        nargs="+",
        metavar="NAME",
        help="names of the blocks' modules, or a pattern such as layers.*; default: the model's"
        " HookPoints or, without any, the best proposal of `fa-audit describe`",
    )
    add(
        "--reads",
        help="part of a state that the head reads, such as 'cls token'; default: 'all features' if"
        " HookPoints mark the states, else found from the outputs",
    )
    add(
        "--partial",
        action="store_true",
        default=None,
        help="accept states that information bypasses, and report how much; default: refuse them",
    )
    add(
        "--credits",
        metavar="MODULE:NAME",
        help="my_file:credits, a function that returns every block's credits: the argument"
        " `credits` of `fa_audit.diagnose`; default none",
    )
    add(
        "--draw",
        metavar="MODULE:NAME",
        help="my_file:draw, a function that returns credits under fresh random feedback, to find"
        " which cosines arise by chance: the argument `draw` of `fa_audit.diagnose`; default none",
    )
    add(
        "--directions",
        type=int,
        help="number of random moves of each state, to measure rho; default 32",
    )
    add(
        "--loss",
        metavar="MODULE:NAME",
        help="my_file:loss, a function of logits and labels; default the cross-entropy",
    )


def _audit(options: argparse.Namespace) -> None:
    is_file = Path(options.checkpoint).exists()
    is_model = ":" in options.checkpoint and not is_file
    if not is_model and not is_file and not options.checkpoint.endswith(".safetensors"):
        raise AuditError(
            f"'{options.checkpoint}': found no such file; expected a checkpoint, FILE.safetensors,"
            " or a function that returns a model, my_file:make_model."
        )
    for name in _OF_CHECKPOINTS if is_model else _OF_MODELS:
        if getattr(options, name) is not None:
            other = "a checkpoint" if is_model else "a model"
            raise AuditError(
                f"--{name.replace('_', '-')}: found with {options.checkpoint}; expected with"
                f" {other} only."
            )
    if options.details and options.format != "text":
        raise AuditError(
            f"--details: found with --format {options.format}; expected with text only."
        )
    audit = _audit_model if is_model else _audit_run
    # Text that user code prints must not mix with the JSON.
    with contextlib.redirect_stdout(sys.stderr):
        report, about = audit(options)
    if options.format == "json":
        print(json.dumps(report.replace(**about).to_dict(), indent=2))
    elif options.format == "markdown":
        print(report.to_markdown())
    else:
        print(report)
        if options.details:
            print(f"\n{report.details()}")


def _audit_model(options: argparse.Namespace) -> tuple[DiagnosticReport, dict[str, Any]]:
    """Audit the model that the user's function returns, on the batches of `--data`."""
    from fa_audit.audit.diagnose import diagnose
    from fa_audit.audit.model_audit import build_model

    model = build_model({"model": options.checkpoint, "arguments": {}, "seed": 0, "weights": None})
    batches = load_batches(options.data)
    functions = {"credits": options.credits, "draw": options.draw, "loss_fn": options.loss}
    given = {name: load(name, {}, entry) for name, entry in functions.items() if entry}
    if options.directions is not None:
        given["directions"] = options.directions
    report = diagnose(
        model,
        batches,
        options.accuracy,
        _accuracy("--frozen", options.frozen),
        method_name=options.checkpoint,
        bp_frozen_acc=_accuracy("--bp-frozen", options.bp_frozen),
        test_samples=options.test_samples,
        description=_description(options, model, batches),
        **given,
    )
    return report, {"model": options.checkpoint}


def load_batches(name: str | None) -> list[Any]:
    """Return the batches that the option `--data` names.

    Raises:
        AuditError: `name` is not of the form my_file:batches, its code fails, or it gives no
            batches.
    """
    expected = "a list of (x, labels) or a function that returns it"
    if not name or ":" not in name:
        raise AuditError(f"--data: found {name}; expected my_file:batches, {expected}.")
    batches = load("batches", {}, name)
    try:
        batches = list(batches() if callable(batches) else batches)
    except Exception as error:  # external code may raise anything
        raise AuditError(f"--data: {name}: {first_line(error)}; expected {expected}.") from error
    if not batches:
        raise AuditError(f"--data: {name}: found no batches; expected {expected}.")
    return batches


def inputs_of(batch: Any) -> Any:
    """Return the part of a batch that a model takes: the first of a pair, or a mapping.

    Raises:
        AuditError: the batch is neither a sequence nor a mapping.
    """
    if isinstance(batch, Mapping):
        return batch
    if not isinstance(batch, list | tuple) or not batch:
        raise AuditError(
            f"--data: found the batch {shortened(batch)}; expected a pair (x, labels), or a mapping"
            " of inputs and labels."
        )
    return batch[0]


def _description(options: argparse.Namespace, model: nn.Module, batches: list[Any]) -> Description:
    """Find the model's states: by the options, else by its HookPoints, else by the best proposal,
    which is printed.
    """
    from fa_audit.networks.proposals import best_proposal
    from fa_audit.networks.states import Description, HookPoint

    partial = bool(options.partial)
    if options.blocks:
        # A single name may be a pattern that matches several modules.
        blocks = options.blocks[0] if len(options.blocks) == 1 else tuple(options.blocks)
        return Description(blocks, options.reads, partial)
    if any(isinstance(part, HookPoint) for part in model.modules()):
        return Description((), options.reads or "all features", partial)
    proposal = best_proposal(model, inputs_of(batches[0]), options.reads)
    if proposal:
        print(f"fa-audit: {proposal.note}: {proposal.python}", file=sys.stderr)
        return proposal.description
    suits = f" read as '{options.reads}'" if options.reads else ""
    raise AuditError(
        f"{options.checkpoint}: found no states{suits} that provably hold all information and"
        " have at least half of the model's layers between them; name modules (--blocks), or put"
        " h = hook(h) with a fa_audit.HookPoint into the model."
    )


def _accuracy(option: str, text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError as error:
        raise AuditError(
            f"{option}: found '{text}'; expected the baseline's accuracy, from 0 to 1. Only the"
            " audit of a checkpoint takes a baseline's .json."
        ) from error


def _audit_run(options: argparse.Namespace) -> tuple[DiagnosticReport, dict[str, Any]]:
    """Audit a checkpoint of this package."""
    from fa_audit.audit.run_audit import audit_files
    from fa_audit.core.numerics import set_numerics

    set_numerics(threads=1)
    checkpoint = Path(options.checkpoint)
    if checkpoint.is_dir():
        files = filter(Path.is_file, checkpoint.glob("*.safetensors"))
        such = min(files, default="results/checkpoints/SETTING/RUN/seed42.safetensors")
        raise AuditError(
            f"{checkpoint}: found a folder; expected the .safetensors file of a training, such as"
            f" {such}, or a function that returns a model: my_file:make_model."
        )
    given = {}
    for kind, ending in (("sidecar", ".json"), ("trajectory", ".csv")):
        path = checkpoint.with_suffix(ending)
        if path.exists():
            given[kind] = path
    baselines = {"own": options.frozen, "bp": options.bp_frozen}
    report, about = audit_files(
        checkpoint,
        data_path(options) if options.data else None,
        baselines={role: path for role, path in baselines.items() if path},
        method=options.method,
        architecture=options.architecture,
        **given,
    )
    del about["baseline_runs"]
    return report, about
