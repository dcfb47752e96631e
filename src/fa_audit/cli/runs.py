"""`fa-audit train` and `audit`: one run, from a data set to its audit."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fa_audit.cli.completion import completed
from fa_audit.core.errors import AuditError, first_line
from fa_audit.core.files import check_output
from fa_audit.core.registry import entry_of
from fa_audit.core.validation import validated
from fa_audit.data import DATASETS
from fa_audit.experiments.config import BUDGET, PAPER, Architecture, SettingEntry
from fa_audit.experiments.paths import data_file
from fa_audit.experiments.spec import RunSpec, parse_run
from fa_audit.methods import METHODS
from fa_audit.networks import ARCHITECTURES

if TYPE_CHECKING:
    from torch import nn

    from fa_audit.audit.report import DiagnosticReport
    from fa_audit.networks.states import Description

DEVICES = ("cpu", "cuda")  # on which the same run gives the same bits
OF_CHECKPOINTS = ("method", "architecture")  # options of `audit`
OF_MODELS = ("accuracy", "test_samples", "blocks", "reads", "credits", "draw", "loss")


def train_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit train`."""
    add = parser.add_argument
    parser.set_defaults(command=_train)
    completed(
        add("run", help="method and options, e.g. dfa, dfa+penalty1e-2, dfa+frozen or dfa+epoch3"),
        METHODS,
    )
    add("output", type=Path, help="the .safetensors file to write; .json and .csv come beside it")
    where = (
        f"name of a data set (`fa-audit list datasets`), whose file {data_file('NAME')} is made "
        "if it is missing; or a file"
    )
    completed(add("--data", metavar="NAME", required=True, help=f"{where}; no default"), DATASETS)
    _add_data_root(parser)
    words = "name (`fa-audit list architectures`) or package.module:Class; default %(default)s"
    completed(add("--architecture", default="resmlp", metavar="NAME", help=words), ARCHITECTURES)
    add("--width", type=int, help="length of a state's vector; default the architecture's")
    add("--depth", type=int, help="number of blocks; default the architecture's")
    words = "for resmlp: initial standard deviation of W2; default 0.01, without skips 0.5"
    add("--w2-std", type=float, help=words)
    for name in BUDGET:
        field = SettingEntry.model_fields[name]
        flag = isinstance(field.default, bool)
        kind = {"action": argparse.BooleanOptionalAction} if flag else {"type": type(field.default)}
        option = f"--{name.replace('_', '-')}"
        # Without a default here, so that an option that repeats the run's name is noticed.
        add(option, **kind, help=f"{field.description}; default {field.default}")
    meaning = "seed of initialisation, feedback, order, augmentation and noise; default %(default)s"
    add("--seed", type=int, default=PAPER["seed"], help=meaning)
    words = "residual penalty LAMBDA, as in RUN+penaltyLAMBDA; default none"
    add("--penalty", metavar="LAMBDA", help=words)
    words = "leave the blocks at initialisation, as in RUN+frozen; default off"
    add("--frozen", action="store_true", help=words)
    add("--device", default="cpu", help="cpu, cuda, cuda:1 and the like; default %(default)s")


def _add_data_root(parser: argparse.ArgumentParser) -> None:
    words = "folder that has, or receives, the downloaded data set; default %(default)s"
    parser.add_argument("--data-root", type=Path, default=Path("data"), metavar="DIR", help=words)


def audit_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit audit`."""
    add = parser.add_argument
    parser.set_defaults(command=_audit)
    words = "a .safetensors file with .json and .csv beside it; or a function that returns a model:"
    add("checkpoint", metavar="NETWORK", help=f"{words} my_file:make_model")
    words = (
        "the data set that the run was trained on, as in `fa-audit train`; default the file of "
        "its name. For a model:"
    )
    more = "my_file:batches, a list of (x, labels) or a function that returns it"
    add("--data", help=f"{words} {more}")
    _add_data_root(parser)
    words = (
        "the method's own frozen baseline: its .json, or for a model its accuracy; default "
        "none: D3 is not evaluated"
    )
    add("--frozen", metavar="BASELINE", help=words)
    words = (
        "the frozen baseline of backpropagation, likewise; default none: D3-strict is not evaluated"
    )
    add("--bp-frozen", metavar="BASELINE", help=words)
    for kind in OF_CHECKPOINTS:
        words = f"{kind} of the checkpoint, if it is not registered; default the file's"
        add(f"--{kind}", metavar="MODULE:CLASS", help=words)
    forms = ("text", "json", "markdown")
    add("--format", choices=forms, default="text", help="format of the output; default %(default)s")
    add(
        "--details",
        action="store_true",
        help="print the evidence of every layer, too; default the report alone",
    )
    add = parser.add_argument_group("of a user-defined model").add_argument
    words = "the model's accuracy on the whole test set, a fraction; default unknown"
    add("--accuracy", type=float, help=words)
    words = "size of the test set, which gives D3 an interval; default unknown"
    add("--test-samples", type=int, metavar="N", help=words)
    words = (
        "names of modules; default the model's HookPoints, else the best proposal of `fa-audit "
        "describe`"
    )
    add("--blocks", nargs="+", metavar="NAME", help=words)
    add("--reads", help="what the head reads of a state; default as proposed")
    words = "my_file:credits, a function as for `fa_audit.diagnose`; default none"
    add("--credits", metavar="MODULE:NAME", help=words)
    words = "my_file:draw, the same with fresh feedback, for the null of cosines; default none"
    add("--draw", metavar="MODULE:NAME", help=words)
    words = "number of directions in which states are moved; default %(default)s"
    add("--directions", type=int, default=32, help=words)
    words = "my_file:loss, a function of logits and labels; default the cross-entropy"
    add("--loss", metavar="MODULE:NAME", help=words)


def _train(options: argparse.Namespace) -> int:
    from fa_audit.core.numerics import set_numerics
    from fa_audit.data.dataset import load_dataset
    from fa_audit.experiments.origins import run_code
    from fa_audit.experiments.paths import RECORD
    from fa_audit.training.resume import Resume
    from fa_audit.training.run_files import train_run, training_origin

    output = options.output
    if output.suffix != ".safetensors" or output.is_dir():
        raise AuditError(
            f"output: found '{output}'; expected a file whose name ends in .safetensors."
        )
    set_numerics(threads=1)
    _check_device(options.device)
    data = _data(options)
    dataset = load_dataset(data)
    spec = _spec(options, dataset.name)
    origin = training_origin(spec, [data], options.device) + RECORD + run_code("train", spec)
    resume = Resume(output.with_name(f".{output.stem}.resume"), origin)
    sidecar, trajectory = output.with_suffix(".json"), output.with_suffix(".csv")
    files = (output, sidecar, trajectory)
    for file in files:
        check_output(file, [data])
    if not resume.path.exists() and any(map(Path.exists, files)):
        _check_replaced(sidecar, spec)
    train_run(
        spec,
        dataset,
        output,
        sidecar=sidecar,
        trajectory=trajectory,
        resume=resume,
        device=options.device,
    )
    return 0


def _check_device(device: str) -> None:
    import torch

    try:
        kind = torch.empty(0, device=device).device.type
    except (RuntimeError, AssertionError) as error:
        raise AuditError(
            f"device: '{device}' is not available here ({first_line(error)})."
        ) from error
    if kind not in DEVICES:
        expected = f"one of {', '.join(DEVICES)}, or cuda:1 and the like"
        raise AuditError(f"device: found '{device}'; expected {expected}.")


def _check_replaced(sidecar: Path, spec: RunSpec) -> None:
    """Check that a training replaces files of the same run only.

    Raises:
        AuditError: the files at the output belong to another run, or to no finished training.
    """
    from fa_audit.training.sidecar import check_spec, read_sidecar

    found = RunSpec.from_dict(read_sidecar(sidecar)["spec"])
    check_spec(found, spec, sidecar, "Name another output, or delete it.")


def _data(options: argparse.Namespace) -> Path:
    """Return the file of a data set, given by name or as a file; make a named one if it is missing."""
    from fa_audit.data.dataset import prepare_data_file

    path = Path(options.data)
    if path.suffix == ".safetensors" or path.is_file():
        return path
    path = Path(data_file(options.data))
    if not path.exists():
        prepare_data_file(options.data, options.data_root, path)
    return path


def _spec(options: argparse.Namespace, dataset: str) -> RunSpec:
    """Build the specification from the command line."""
    added = [f"penalty{options.penalty}"] * (options.penalty is not None) + [
        "frozen"
    ] * options.frozen
    run = parse_run("+".join([options.run, *added]))
    entry_of("method", METHODS, run.method)
    given = {name: getattr(options, name) for name in (*BUDGET, "width", "depth", "w2_std")}
    given = {name: value for name, value in given.items() if value is not None}
    for name, named in (("lr", run.lr), ("normalise", run.unnormalised)):
        if named and name in given:
            raise AuditError(f"--{name}: found with the run '{run}', which has its own; drop one.")
    budget = {name: given.pop(name) for name in BUDGET if name in given}
    network = validated(Architecture, {"name": options.architecture, **given}, "architecture")
    return run.spec(
        depth=network.options["depth"],
        dataset=dataset,
        architecture=options.architecture,
        architecture_options=tuple(sorted(network.options.items())),
        seed=options.seed,
        **budget,
    )


def _audit(options: argparse.Namespace) -> int:
    own = ":" in options.checkpoint and not Path(options.checkpoint).exists()
    unused = OF_CHECKPOINTS if own else OF_MODELS
    if given := [name.replace("_", "-") for name in unused if getattr(options, name) is not None]:
        found, expected = ("a model", "a checkpoint") if own else ("a checkpoint", "a model")
        raise AuditError(
            f"--{given[0]}: found with {found}, {options.checkpoint}; expected with {expected} "
            "only."
        )
    with contextlib.redirect_stdout(sys.stderr):  # what user code prints
        report, known = (_audit_model if own else _audit_run)(options)
    forms = {
        "text": str,
        "markdown": type(report).to_markdown,
        "json": lambda report: json.dumps(report.replace(**known).to_dict(), indent=2),
    }
    print(forms[options.format](report))
    if options.details and options.format == "text":
        print(f"\n{report.details()}")
    return 0


def _audit_model(options: argparse.Namespace) -> tuple[DiagnosticReport, dict[str, Any]]:
    """Audit the model that one function returns, on the batches of another."""
    from fa_audit.audit.diagnose import diagnose
    from fa_audit.audit.model_audit import build_model
    from fa_audit.core.registry import load

    if not options.data or ":" not in options.data:
        raise AuditError(
            f"--data: found {options.data}; expected my_file:batches, a list of (x, labels) or "
            "a function."
        )
    model = build_model({"model": options.checkpoint, "arguments": {}, "seed": 0, "weights": None})
    batches = load("batches", {}, options.data)
    try:
        batches = list(batches() if callable(batches) else batches)
    except Exception as error:  # external code may raise anything
        expected = "expected a list of (x, labels) or a function that returns it"
        raise AuditError(f"--data: {options.data}: {first_line(error)}; {expected}.") from error
    description = _description(options, model, batches)
    functions = {"credits": options.credits, "draw": options.draw, "loss_fn": options.loss}
    given = {name: load(name, {}, entry) for name, entry in functions.items() if entry}
    report = diagnose(
        model,
        batches,
        options.accuracy,
        _accuracy("--frozen", options.frozen),
        method_name=options.checkpoint,
        bp_frozen_acc=_accuracy("--bp-frozen", options.bp_frozen),
        test_samples=options.test_samples,
        description=description,
        directions=options.directions,
        **given,
    )
    return report, {"model": options.checkpoint}


def _description(options: argparse.Namespace, model: nn.Module, batches: list[Any]) -> Description:
    """Describe the model by the options, or by the best proposal, which is printed."""
    from fa_audit.networks.proposals import LEAST_COVERED, fitting_reading, propose
    from fa_audit.networks.states import Description, HookPoint

    if options.blocks:
        blocks = options.blocks[0] if len(options.blocks) == 1 else tuple(options.blocks)
        reads = options.reads or (
            fitting_reading(model, blocks, batches[0]) if batches else "all features"
        )
        return Description(blocks, reads)
    if any(isinstance(part, HookPoint) for part in model.modules()):
        return Description(reads=options.reads or "all features")
    if not batches:
        raise AuditError(
            f"{options.data}: found no batches to propose blocks with; name them: --blocks."
        )
    first = batches[0] if isinstance(batches[0], Mapping) else batches[0][0]
    for proposal in propose(model, first):
        if (
            options.reads in (None, proposal.description.reads)
            and proposal.covered >= LEAST_COVERED
        ):
            print(f"fa-audit: {proposal.note}: {proposal.python}", file=sys.stderr)
            return proposal.description
    suits = f" that is read by '{options.reads}'" if options.reads else ""
    raise AuditError(
        f"{options.checkpoint}: found no states{suits} that are proven and have half of the "
        "layers between them; name"
        " modules (--blocks), or put h = hook(h) with a fa_audit.HookPoint into the model."
    )


def _accuracy(option: str, text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError as error:
        raise AuditError(
            f"{option}: found '{text}'; expected an accuracy, a fraction, with a model."
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
            f"{checkpoint}: found a folder; expected the .safetensors file of a training, such "
            f"as {such}, or what makes"
            " a model: my_file:make_model."
        )
    stem = checkpoint.parent / checkpoint.stem
    beside = {"sidecar": Path(f"{stem}.json"), "trajectory": Path(f"{stem}.csv")}
    baselines = {"own": options.frozen, "bp": options.bp_frozen}
    report, about = audit_files(
        checkpoint,
        _data(options) if options.data else None,
        **{kind: path for kind, path in beside.items() if path.exists()},
        baselines={role: path for role, path in baselines.items() if path},
        method=options.method,
        architecture=options.architecture,
    )
    del about["baseline_runs"]
    return report, {key: value for key, value in about.items() if value is not None}
