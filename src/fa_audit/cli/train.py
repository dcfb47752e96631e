"""`fa-audit train`: train one network on a data set and write its checkpoint."""

from __future__ import annotations

import argparse
from pathlib import Path

from fa_audit.cli.completion import completed
from fa_audit.core.errors import AuditError, first_line
from fa_audit.core.files import check_output
from fa_audit.core.registry import entry_of
from fa_audit.core.validation import validated
from fa_audit.data import DATASETS
from fa_audit.experiments.config import BUDGET, Architecture, SettingEntry
from fa_audit.experiments.paths import data_file
from fa_audit.experiments.spec import PAPER, RunSpec, parse_run
from fa_audit.methods import METHODS
from fa_audit.networks import ARCHITECTURES


def train_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit train`."""
    add = parser.add_argument
    parser.set_defaults(command=_train)
    words = "method and options, e.g. dfa, dfa+penalty1e-2, dfa+frozen or dfa+epoch3"
    completed(add("run", help=words), METHODS)
    add("output", type=Path, help="FILE.safetensors, to be written with FILE.json and FILE.csv")
    named = f"{data_file('NAME')}, made if missing"
    words = f"a data set's file, or NAME from `fa-audit list datasets` to use {named}; no default"
    completed(add("--data", metavar="NAME", required=True, help=words), DATASETS)
    add_data_root(parser)
    words = "name (`fa-audit list architectures`) or package.module:Class; default %(default)s"
    completed(add("--architecture", default="resmlp", metavar="NAME", help=words), ARCHITECTURES)
    add("--width", type=int, help="length of a state's vector; default the architecture's")
    add("--depth", type=int, help="number of blocks; default the architecture's")
    add(
        "--w2-std",
        type=float,
        help="for resmlp: initial standard deviation of each block's last weights; default 0.01",
    )
    for name in BUDGET:
        field = SettingEntry.model_fields[name]
        option = f"--{name.replace('_', '-')}"
        words = f"{field.description}; default {field.default}"
        # No default, so that `_spec` can refuse an option that the run's name also sets.
        if isinstance(field.default, bool):
            add(option, action=argparse.BooleanOptionalAction, help=words)
        else:
            add(option, type=type(field.default), help=words)
    add(
        "--seed",
        type=int,
        default=PAPER["seed"],
        help="seed of initialisation, feedback, order, augmentation and noise; default %(default)s",
    )
    add("--device", default="cpu", help="cpu, cuda, cuda:1 and the like; default %(default)s")


def add_data_root(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--data-root``, which `data_path` reads."""
    parser.add_argument(
        "--data-root",
        type=Path,
        default=Path("data"),
        metavar="DIR",
        help="folder of downloaded data sets, into which a missing one is downloaded; default"
        " %(default)s",
    )


def data_path(options: argparse.Namespace) -> Path:
    """Return the file of the data set that `--data` gives as a file or by name.

    If a named data set has no file yet, the file is made.
    """
    from fa_audit.data.dataset import prepare_data_file

    path = Path(options.data)
    if path.suffix == ".safetensors" or path.is_file():
        return path
    path = Path(data_file(options.data))
    if not path.exists():
        prepare_data_file(options.data, options.data_root, path)
    return path


def _train(options: argparse.Namespace) -> None:
    from fa_audit.core.numerics import set_numerics
    from fa_audit.data.dataset import load_dataset
    from fa_audit.experiments.origins import run_code
    from fa_audit.training.resume import Resume
    from fa_audit.training.run_files import train_run, training_origin
    from fa_audit.training.sidecar import read_training

    output = options.output
    if output.suffix != ".safetensors" or output.is_dir():
        raise AuditError(
            f"output: found '{output}'; expected a file whose name ends in .safetensors."
        )
    set_numerics(threads=1)
    _check_device(options.device)
    data = data_path(options)
    dataset = load_dataset(data)
    spec = _spec(options, dataset.name)
    # The origin keeps a training from resuming a state that other code saved.
    origin = f"{training_origin(spec, [data], options.device)} {run_code('train', spec)}"
    resume = Resume(output.with_name(f".{output.stem}.resume"), origin)
    sidecar, trajectory = output.with_suffix(".json"), output.with_suffix(".csv")
    files = (output, sidecar, trajectory)
    for file in files:
        check_output(file, [data])
    if not resume.path.exists() and any(map(Path.exists, files)):
        # Replace files of the same run only.
        read_training(sidecar, spec, "Name another output, or delete this one.")
    train_run(
        spec,
        dataset,
        output,
        sidecar=sidecar,
        trajectory=trajectory,
        resume=resume,
        device=options.device,
    )


def _check_device(device: str) -> None:
    import torch

    try:
        kind = torch.empty(0, device=device).device.type
    except (RuntimeError, AssertionError) as error:
        raise AuditError(
            f"device: '{device}' is not available here ({first_line(error)})."
        ) from error
    # Kinds of device on which a repeated run gives the same bits.
    if kind not in ("cpu", "cuda"):
        raise AuditError(
            f"device: found '{device}'; expected one of cpu, cuda, or cuda:1 and the like."
        )


def _spec(options: argparse.Namespace, dataset: str) -> RunSpec:
    """Build the run's specification from the options."""
    run = parse_run(options.run)
    entry_of("method", METHODS, run.method)
    given = {}
    for name in (*BUDGET, "width", "depth", "w2_std"):
        if getattr(options, name) is not None:
            given[name] = getattr(options, name)
    for name, named in (("lr", run.lr), ("normalise", run.unnormalised)):
        if named and name in given:
            raise AuditError(f"--{name}: found with the run '{run}', which sets it too; drop one.")
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
