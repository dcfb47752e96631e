"""`fa-audit check` tests a training method; `fa-audit describe` finds the states of a model."""

from __future__ import annotations

import argparse
import json
import logging
from typing import Any

from fa_audit.cli.audit import inputs_of, load_batches
from fa_audit.cli.completion import completed
from fa_audit.core.errors import AuditError
from fa_audit.methods import METHODS


def check_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit check`."""
    # Do not log the many small trainings.
    parser.set_defaults(command=_check, log_level=logging.WARNING)
    method = parser.add_argument(
        "method", help="my_file:ClassName, or one of `fa-audit list methods`"
    )
    completed(method, METHODS)


def describe_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit describe`."""
    add = parser.add_argument
    parser.set_defaults(command=_describe)
    add(
        "model",
        help="function that returns the model: torchvision.models:vit_b_16, or my_file:make_model",
    )
    add(
        "--arguments",
        type=_mapping,
        default={},
        metavar="JSON",
        help="arguments of the function, e.g. '{\"num_classes\": 10}'; default none",
    )
    add(
        "--image-shape",
        type=_size,
        nargs="+",
        default=[3, 224, 224],
        metavar="N",
        help="shape of one image, without the batch dimension; default 3 224 224",
    )
    add(
        "--data",
        metavar="MODULE:NAME",
        help="my_file:batches, a list of (x, labels) or of mappings, or a function that returns it;"
        " the first batch is used; default random images",
    )
    add(
        "--all", action="store_true", help="print every description that fits; default the best one"
    )


def _mapping(text: str) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"found {text!r}; expected a JSON mapping") from error


def _size(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"found {text!r}; expected an integer >= 1")
    return int(text)


def _check(options: argparse.Namespace) -> bool:
    from fa_audit.testing import CHECKS, conformance, promise_of

    found = conformance(options.method)
    for name in found.passed:
        promise = promise_of(CHECKS[name]).partition(". ")[0].replace("`", "")
        print(f"passed  {name:<14} {promise}")
    for name, finding in found.findings.items():
        print(f"FAILED  {name:<14} {finding}")
    passed, failed = len(found.passed), len(found.findings)
    print(f"{found.name}: {passed} of {len(CHECKS)} checks passed, {failed} failed")
    return failed > 0


def _describe(options: argparse.Namespace) -> None:
    import torch

    from fa_audit.audit.model_audit import build_model
    from fa_audit.networks.proposals import propose

    entry = {"model": options.model, "arguments": options.arguments, "seed": 0, "weights": None}
    model = build_model(entry)
    if options.data:
        x = inputs_of(load_batches(options.data)[0])
    else:
        x = torch.rand(2, *options.image_shape, generator=torch.Generator().manual_seed(0))
    try:
        found = propose(model, x)
    except AuditError as error:
        raise AuditError(f"{error} For other inputs, give --image-shape or --data.") from error
    if not found:
        raise AuditError(
            f"{options.model}: found no chain of modules whose states can be read; describe the"
            " model by hand."
        )
    shown = found if options.all else found[:1]
    print("\n\n".join(map(str, shown)))
    if len(found) > len(shown):
        print(f"\n# --all prints {len(found) - len(shown)} more")
