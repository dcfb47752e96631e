"""Save and load trained networks: tensors as safetensors, everything else as JSON inside.

Nothing in these files can execute, and each has a SHA-256 of its whole content.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fa_audit.core.errors import AuditError, shortened
from fa_audit.core.files import FOREIGN, digest_of, write_bytes
from fa_audit.data.data_file import checksum
from fa_audit.experiments.spec import RunSpec
from fa_audit.methods import METHODS
from fa_audit.methods.method import Method, load_method
from fa_audit.networks import ARCHITECTURES
from fa_audit.training.learner import Learner, build

log = logging.getLogger(__name__)
FORMAT = "fa-audit checkpoint 1"
# Characters of torch's message in an error.
_LONGEST = 500
HINT = "name another file, or delete a damaged one and train the run again"


def learner_tensors(learner: Learner) -> dict[str, Tensor]:
    """Return every tensor of a learner, named ``network.*`` and ``state.*``."""
    tensors = {}
    for part, module in (("network", learner.network), ("state", learner.state)):
        tensors |= {f"{part}.{name}": tensor for name, tensor in module.state_dict().items()}
    return tensors


def load_learner_tensors(learner: Learner, tensors: dict[str, Tensor]) -> None:
    """Copy the tensors of `learner_tensors` into a learner built from the same specification.

    Raises:
        RuntimeError: a name, a shape or a type does not fit.
    """
    for name, own in learner_tensors(learner).items():
        # Torch would convert the type in silence.
        if name in tensors and tensors[name].dtype != own.dtype:
            raise RuntimeError(f"{name} is of {tensors[name].dtype}, expected {own.dtype}")
    learner.network.load_state_dict(under("network", tensors))
    learner.state.load_state_dict(under("state", tensors))


def under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors below ``prefix.``, by the rest of their names."""
    return {
        name.removeprefix(f"{prefix}."): value
        for name, value in tensors.items()
        if name.startswith(f"{prefix}.")
    }


def save_checkpoint(learner: Learner, path: str | Path) -> None:
    """Write a trained learner; the same learner always gives the same bytes.

    Raises:
        AuditError: a constant of the method cannot be written as JSON.
    """
    about = {
        "spec": learner.spec.to_dict(),
        "method": _described(learner.method),
        "image_shape": list(learner.image_shape),
        "classes": learner.network.classes,
    }
    write_tensor_file(path, FORMAT, learner_tensors(learner), about)


def load_checkpoint(
    path: str | Path,
    device: torch.device | str = "cpu",
    *,
    method: Method | None = None,
    architecture: str | None = None,
) -> Learner:
    """Rebuild the learner that `save_checkpoint` wrote.

    A file never decides which code runs: it can name registered methods and architectures only.

    Args:
        method: an instance to use instead of the method that the file names; required if that is
            not registered.
        architecture: the ``package.module:Class`` that the file is allowed to name; required if its
            architecture is not registered.

        Raises:
        AuditError: the file is missing, damaged or no checkpoint; its tensors do not fit its
            specification; or it names a method or architecture that is neither registered nor
            given.
    """
    tensors, about = read_tensor_file(path, FORMAT)
    try:
        learner = _untrained(about, method, architecture, str(path))
        load_learner_tensors(learner, tensors)
    except AuditError as error:
        raise AuditError(f"{path}: {str(error).rstrip(' .')}; {HINT}.") from error
    except (*FOREIGN, RuntimeError) as error:
        raise AuditError(
            f"{path}: the tensors do not fit their specification: {_message(error)}; {HINT}."
        ) from error
    return learner.to(device)


def _untrained(
    about: dict[str, Any], method: Method | None, architecture: str | None, path: str
) -> Learner:
    """Build the untrained learner of a checkpoint, from registered classes or the given ones."""
    spec = RunSpec.from_dict(about["spec"])
    if spec.architecture not in (*ARCHITECTURES, architecture):
        raise AuditError(
            f"the architecture {shortened(spec.architecture)} is not one of fa-audit's own. A "
            "file does not decide what"
            " is imported: pass load_checkpoint(path, architecture=...), or --architecture "
            "package.module:Class on the"
            " command line"
        )
    if method is None:
        method = _registered_method(spec.method, about["method"])
    elif about["method"] != _described(method):
        log.warning(
            "%s was written with %s; continuing with %s", path, about["method"], _described(method)
        )
    return build(spec, tuple(about["image_shape"]), about["classes"], method)


def _described(method: Method) -> dict[str, Any]:
    """Return class and constants of a method as plain JSON types."""
    kind = f"{type(method).__module__}:{type(method).__qualname__}"
    try:
        return {"class": kind, "constants": json.loads(json.dumps(asdict(method)))}
    except (TypeError, ValueError) as error:
        raise AuditError(
            f"method '{kind}': constants found that are not JSON ({error}); expected numbers, "
            "strings, booleans, None"
            " and lists or dictionaries of them. Keep tensors in the state that `init_state` "
            "returns."
        ) from error


def _registered_method(name: str, stored: Mapping[str, Any]) -> Method:
    """Return the registered method of a name with the constants of a checkpoint."""
    if METHODS.get(name) != stored["class"]:
        raise AuditError(
            f"written by the method {shortened(name)} (class {shortened(stored['class'])}), "
            "which is not one of"
            " fa-audit's own. A file does not decide what is imported: pass "
            "load_checkpoint(path, method=YourMethod()),"
            " or --method package.module:ClassName on the command line"
        )
    return replace(load_method(name), **stored["constants"])


def write_tensor_file(
    path: str | Path, kind: str, tensors: Mapping[str, Tensor], about: Mapping[str, Any]
) -> None:
    """Write tensors and their description with a SHA-256 over both; equal content gives equal
    bytes.

    Args:
        kind: the kind of file, and the version of its format.
    """
    about = {"format": kind} | dict(about)
    about |= {"sha256": _checksum(tensors, about)}
    # One metadata key only: safetensors writes several in an arbitrary order, and equal runs must
    # be equal bytes.
    metadata = {"fa_audit": json.dumps(about, sort_keys=True)}
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # Not save_file: killed, it leaves a temporary file under a name of its own.
    write_bytes(path, save(contiguous, metadata))


def read_tensor_file(path: str | Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a file of `write_tensor_file` and compare it with its SHA-256.

    Raises:
        AuditError: the file is missing, damaged, or not of this kind.
    """
    try:
        with safe_open(path, framework="pt") as stream:
            about = json.loads((stream.metadata() or {})["fa_audit"])
            tensors = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118 (not a dict)
        undamaged = about.pop("sha256") == _checksum(tensors, about)
    except (OSError, MemoryError, SafetensorError, *FOREIGN) as error:
        found = (
            "no such file" if not Path(path).exists() else "truncated, foreign or executable file"
        )
        raise AuditError(
            f"{path}: {found} ({type(error).__name__}: {_message(error)}). Expected safetensors "
            "written by fa-audit;"
            f" {HINT}."
        ) from error
    if not undamaged:
        raise AuditError(f"{path}: altered (SHA-256 differs); {HINT}.")
    if about["format"] != kind:
        raise AuditError(f"{path}: holds {shortened(about['format'])}, expected '{kind}'; {HINT}.")
    return tensors, about


def _checksum(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> str:
    """Return one SHA-256 over the description and over the tensors' names, types, shapes and
    contents.
    """
    described = [
        (name, str(t.dtype), list(t.shape), checksum(t.detach().cpu()))
        for name, t in sorted(tensors.items())
    ]
    return digest_of([described, about])


def _message(error: BaseException) -> str:
    """Return an error's message on one line, without a full stop at the end."""
    return " ".join(str(error).split())[:_LONGEST].rstrip(" .")
