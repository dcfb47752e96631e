"""`fa-audit`: train, audit and report a single run without the workflow, verify artefacts, list what there is."""

from __future__ import annotations

import argparse
import inspect
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from fa_audit import __version__
from fa_audit.core.errors import AuditError, printable, unknown
from fa_audit.core.registry import entry_of, load
from fa_audit.data import DATASETS
from fa_audit.experiments.paths import data_file
from fa_audit.experiments.spec import RunSpec, parse_run
from fa_audit.methods import METHODS
from fa_audit.networks import ARCHITECTURE_OPTIONS, ARCHITECTURES

PUBLISHED = "reference/published.yaml"
DEVICES = ("cpu", "cuda")  # on which the same run gives the same bits


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status: 0 done, 1 bad input or files that do not verify."""
    sys.path.append(os.getcwd())  # methods of the user's own
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        return options.command(options)
    except (AuditError, OSError) as error:
        print(f"fa-audit: {printable(str(error))}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fa-audit", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _audit_parser(commands.add_parser("audit", help="audit a checkpoint"))
    _report_parser(commands.add_parser("report", help="fill in the reporting template from the audits of one cell"))
    _train_parser(commands.add_parser("train", help="train one network and write its checkpoint"))
    _plan_parser(commands.add_parser("plan", help="print the runs of a configuration and their hours"))
    verify = commands.add_parser("verify", help="compare results with the SHA-256 that is recorded of them")
    verify.set_defaults(command=_verify)
    _scorecard_parser(commands.add_parser("scorecard", help="compare published numbers with the audits that exist"))
    for name, command in (("methods", _methods), ("architectures", _architectures), ("datasets", _datasets)):
        commands.add_parser(name, help=f"list the {name}").set_defaults(command=command)
    return parser


def _audit_parser(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=_audit)
    parser.add_argument("checkpoint", type=Path, help="a .safetensors file with its .json and .csv beside it")
    parser.add_argument("--data", type=Path, help="data file; default results/data/DATASET.safetensors")
    parser.add_argument("--frozen", type=Path, metavar="JSON", help="the method's own frozen baseline")
    parser.add_argument("--bp-frozen", type=Path, metavar="JSON", help="backpropagation's frozen baseline")
    parser.add_argument("--method", help="package.module:ClassName of a checkpoint whose method is not fa-audit's own")
    parser.add_argument("--format", choices=("text", "json", "markdown"), default="text")


def _report_parser(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=_report)
    parser.add_argument("audits", type=Path, nargs="+", metavar="FILE", help="an audit's JSON, one for each seed")
    parser.add_argument("--format", choices=("markdown", "latex"), default="markdown")
    parser.add_argument("--output", type=Path, metavar="PATH", help="the file to write; default the terminal")


def _train_parser(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=_train)
    parser.add_argument("run", help="method and options, e.g. dfa+penalty1e-2 or dfa+frozen")
    parser.add_argument("output", type=Path, help="the .safetensors file to write")
    parser.add_argument("--data", type=Path, required=True, help="a data file of the workflow")
    parser.add_argument("--architecture", default="resmlp", help="one of `fa-audit architectures`")
    parser.add_argument("--width", type=int, help="length of a state's vector; default the architecture's")
    parser.add_argument("--depth", type=int, help="number of blocks; default the architecture's")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--device", default="cpu")


def _plan_parser(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=_plan)
    parser.add_argument(
        "--configfile", type=Path, default=Path("config.yaml"), metavar="FILE", help="the configuration"
    )


def _scorecard_parser(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=_scorecard)
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="DIR", help="default results")
    parser.add_argument("--published", metavar="YAML", default=PUBLISHED, help=f"default {PUBLISHED}")
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="write scorecard.csv, .md and .html there; default the terminal"
    )


def _audit(options: argparse.Namespace) -> int:
    from fa_audit.audit.run_audit import audit
    from fa_audit.core.numerics import set_numerics
    from fa_audit.data.dataset import load_dataset
    from fa_audit.training.checkpoint import load_checkpoint
    from fa_audit.training.learner import load_method
    from fa_audit.training.sidecar import check_run, check_spec, read_sidecar
    from fa_audit.training.trajectory import read_trajectory

    set_numerics(threads=1)
    learner = load_checkpoint(options.checkpoint, method=load_method(options.method) if options.method else None)
    sidecar, history = (options.checkpoint.with_suffix(suffix) for suffix in (".json", ".csv"))
    facts = read_sidecar(sidecar) if sidecar.exists() else {}
    there = {"trajectory": history} if history.exists() else {}
    if facts:
        check_run(facts, sidecar, checkpoint=options.checkpoint, **there)
        check_spec(RunSpec.from_dict(facts["spec"]), learner.spec, sidecar, "Put the checkpoint's own beside it.")
    own = _baseline(options.frozen, f"{learner.spec.method}+frozen", learner.spec)
    bp = _baseline(options.bp_frozen, "bp+frozen", learner.spec)
    report = audit(
        learner,
        load_dataset(options.data or data_file(learner.spec.dataset)),
        facts.get("accuracy"),
        own_frozen=own,
        bp_frozen_acc=bp[1] if bp else None,
        trajectory=read_trajectory(history) if history.exists() else (),
        stopped_after=facts.get("stopped_after"),
    )
    forms = {
        "text": str,
        "markdown": type(report).to_markdown,
        "json": lambda report: json.dumps(report.to_dict() | _about(learner.spec, facts), indent=2),
    }
    print(forms[options.format](report))
    return 0


def _about(spec: RunSpec, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the audited run as the workflow's audits do; what the sidecar lacks is left out."""
    from fa_audit.core.provenance import provenance

    facts = facts | {key: facts.get("provenance", {}).get(key) for key in ("device", "commit")}
    known = {key: facts[key] for key in ("stopped_after", "seconds", "device", "commit") if facts.get(key) is not None}
    return {"spec": spec.to_dict(), "digest": spec.digest, "provenance": provenance("cpu")} | known


def _baseline(path: Path | None, name: str, audited: RunSpec) -> tuple[str, float] | None:
    """Read name and accuracy of a frozen baseline, and compare it with its trajectory, where that is beside it.

    Raises:
        AuditError: it is another run, or of another cell than the audited network, or was altered.
    """
    from fa_audit.training.sidecar import check_baseline, read_baseline
    from fa_audit.training.trajectory import check_history, read_trajectory

    if path is None:
        return None
    facts = read_baseline(path)
    check_baseline(facts, name, audited, path, "Give its file, or train it.")
    if (history := path.with_suffix(".csv")).exists():
        spec = RunSpec.from_dict(facts["spec"])
        check_history(read_trajectory(history), spec, facts["accuracy"], facts.get("stopped_after"), str(history))
    return name, facts["accuracy"]


def _report(options: argparse.Namespace) -> int:
    from fa_audit.audit.audit_file import read_seed_group
    from fa_audit.core.files import write_text
    from fa_audit.results.reporting import report, to_latex, to_markdown

    text = {"markdown": to_markdown, "latex": to_latex}[options.format](report(read_seed_group(options.audits)))
    if options.output:
        write_text(options.output, text)
    else:
        print(text, end="")
    return 0


def _train(options: argparse.Namespace) -> int:
    from fa_audit.core.numerics import set_numerics
    from fa_audit.data.dataset import load_dataset
    from fa_audit.training.checkpoint import Resume
    from fa_audit.training.learner import load_method
    from fa_audit.training.run_files import fingerprint, train_run

    output: Path = options.output
    if output.suffix != ".safetensors":
        raise AuditError(f"output: found '{output}'; expected a name that ends in .safetensors.")
    set_numerics(threads=1)
    _check_device(options.device)
    dataset = load_dataset(options.data)
    spec = _spec(options, dataset.name)
    code = [*sorted(Path(__file__).parent.rglob("*.py")), inspect.getfile(type(load_method(spec.method)))]
    resume = Resume(
        output.with_name(f".{output.stem}.resume"), fingerprint(spec, [options.data, *code], options.device)
    )
    sidecar, trajectory = output.with_suffix(".json"), output.with_suffix(".csv")
    train_run(spec, dataset, output, sidecar=sidecar, trajectory=trajectory, resume=resume, device=options.device)
    return 0


def _check_device(name: str) -> None:
    import torch

    try:
        if torch.empty(0, device=name).device.type not in DEVICES:
            raise AuditError(f"device: found '{name}'; expected one of {', '.join(DEVICES)}, or cuda:1 and the like.")
    except (RuntimeError, AssertionError) as error:
        raise AuditError(f"device: '{name}' is not available here ({str(error).splitlines()[0]}).") from error


def _spec(options: argparse.Namespace, dataset: str) -> RunSpec:
    """Build the specification from the command line; options that it lacks keep their defaults."""
    from fa_audit.experiments.config import LARGEST_OPTION

    if options.architecture not in ARCHITECTURES:
        raise unknown("architecture", options.architecture, ARCHITECTURES)
    run = parse_run(options.run)
    entry_of("method", METHODS, run.method)
    chosen = {name: value for name in ("width", "depth") if (value := getattr(options, name)) is not None}
    if wrong := [name for name, value in chosen.items() if not 1 <= value <= LARGEST_OPTION]:
        raise AuditError(f"{wrong[0]}: found {chosen[wrong[0]]}; expected an integer 1..{LARGEST_OPTION}.")
    network = ARCHITECTURE_OPTIONS[options.architecture] | chosen
    return run.spec(
        depth=network["depth"],
        dataset=dataset,
        architecture=options.architecture,
        architecture_options=tuple(sorted(network.items())),
        epochs=options.epochs,
        batch_size=options.batch_size,
        seed=options.seed,
    )


def _plan(options: argparse.Namespace) -> int:
    from fa_audit.experiments.config_file import load_config
    from fa_audit.experiments.costs import read_costs
    from fa_audit.experiments.grid import read_grid
    from fa_audit.experiments.plan import plan_table
    from fa_audit.results.kinds import KINDS

    config, line_of = load_config(options.configfile)
    print(plan_table(read_grid(config, KINDS, line_of), read_costs("benchmarks/costs.json")))
    return 0


def _verify(options: argparse.Namespace) -> int:
    from fa_audit.results.origin import mismatches, recorded

    digests = recorded()
    problems = list(mismatches(digests))
    print("\n".join([*problems, f"{len(digests)} files, {f'{len(problems)} not' if problems else 'all'} as recorded"]))
    return 1 if problems else 0


def _scorecard(options: argparse.Namespace) -> int:
    from fa_audit.experiments.config_file import load_config
    from fa_audit.experiments.paths import SCORECARD_ENDINGS
    from fa_audit.experiments.published import read_published
    from fa_audit.results.scorecard import audits_in, made_by, scorecard, summary_line, to_markdown, write_scorecard

    if options.output and options.output.resolve() == options.results.resolve():
        raise AuditError(
            f"--output: found '{options.output}', where the workflow keeps its own; expected another folder."
        )
    published = read_published(load_config(options.published)[0])
    audits = audits_in(options.results, published)
    rows, remark = scorecard(published, audits), made_by(audits)
    if options.output:
        write_scorecard(rows, remark, [options.output / f"scorecard.{ending}" for ending in SCORECARD_ENDINGS])
        print(f"{options.output}/scorecard.md: {summary_line(rows)}")
    else:
        print(to_markdown(rows, remark), end="")
    return 0


def _methods(options: argparse.Namespace) -> int:
    for name in METHODS:
        print(f"{name:<16} {load('method', METHODS, name).summary}")
    return 0


def _architectures(options: argparse.Namespace) -> int:
    for name, defaults in ARCHITECTURE_OPTIONS.items():
        module = import_module(load("architecture", ARCHITECTURES, name).__module__)
        print(f"{name:<16} {(module.__doc__ or '').splitlines()[0]}")
        print(f"{'':<16} options: {', '.join(f'{option}={value}' for option, value in defaults.items())}")
    return 0


def _datasets(options: argparse.Namespace) -> int:
    for name in DATASETS:
        print(f"{name:<16} {(load('dataset', DATASETS, name).__doc__ or '').splitlines()[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
