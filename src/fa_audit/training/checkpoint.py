"""Save and load trained networks: tensors as safetensors, the rest as JSON in the file's metadata.

Nothing in these files can execute, and each stores a SHA-256 of everything else in it.
"""

from __future__ import annotations

import json
import logging
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from fa_audit.core.errors import AuditError, shortened
from fa_audit.core.files import FOREIGN, digest_of, read_tensors, write_bytes
from fa_audit.data.data_file import checksum
from fa_audit.experiments.spec import RunSpec
from fa_audit.methods import METHODS
from fa_audit.methods.method import Method, load_method
from fa_audit.networks import ARCHITECTURES
from fa_audit.training.learner import Learner, build

log = logging.getLogger(__name__)
FORMAT = "fa-audit checkpoint 1"
HINT = "name another file, or delete a damaged one and train the run again"
# The entry of the file's metadata that describes its tensors.
_KEY = "fa_audit"


def learner_tensors(learner: Learner) -> dict[str, Tensor]:
    """Return every tensor of a learner, named ``network.*`` and ``state.*``."""
    return learner.parts.state_dict()


def load_learner_tensors(learner: Learner, tensors: dict[str, Tensor]) -> None:
    """Copy the tensors of `learner_tensors` into a learner built from the same specification.

    Raises:
        RuntimeError: a name, a shape or a type does not fit.
    """
    for name, own in learner_tensors(learner).items():
        # Torch would convert another type in silence.
        if name in tensors and tensors[name].dtype != own.dtype:
            raise RuntimeError(f"{name} is of {tensors[name].dtype}, expected {own.dtype}")
    learner.parts.load_state_dict(tensors)


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

    A file never decides which code runs: pass any method or architecture that is not registered.

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
        spec = RunSpec.from_dict(about["spec"])
        if spec.architecture not in (*ARCHITECTURES, architecture):
            raise _not_imported("architecture", spec.architecture)
        if method is None:
            method = _registered_method(spec.method, about["method"])
        elif about["method"] != _described(method):
            written = about["method"]
            log.warning("%s was written with %s; using %s", path, written, _described(method))
        learner = build(spec, tuple(about["image_shape"]), about["classes"], method)
        load_learner_tensors(learner, tensors)
    except AuditError as error:
        raise AuditError(f"{path}: {str(error).rstrip(' .')}; {HINT}.") from error
    except (*FOREIGN, RuntimeError) as error:
        # Torch's message has a line for every tensor, so shorten it.
        why = textwrap.shorten(str(error), 500).rstrip(" .")
        raise AuditError(
            f"{path}: the tensors do not fit their specification: {why}; {HINT}."
        ) from error
    return learner.to(device)


def _described(method: Method) -> dict[str, Any]:
    """Return class and constants of a method as plain JSON types."""
    kind = f"{type(method).__module__}:{type(method).__qualname__}"
    try:
        return {"class": kind, "constants": json.loads(json.dumps(asdict(method)))}
    except (TypeError, ValueError) as error:
        raise AuditError(
            f"method '{kind}': constants found that are not JSON ({error}); expected numbers,"
            " strings, booleans, None and lists or dictionaries of them. Keep tensors in the state"
            " that `init_state` returns."
        ) from error


def _registered_method(name: str, stored: Mapping[str, Any]) -> Method:
    """Return the registered method `name`, with the constants that a checkpoint stores."""
    # Compare the class, since the name may stand for another class by now.
    if METHODS.get(name) != stored["class"]:
        raise _not_imported("method", name)
    return replace(load_method(name), **stored["constants"])


def _not_imported(kind: str, name: str) -> AuditError:
    return AuditError(
        f"the {kind} {shortened(name)} is not one of fa-audit's own. A file does not decide what is"
        f" imported: pass load_checkpoint(path, {kind}=...), or --{kind} package.module:Class on"
        " the command line"
    )


def write_tensor_file(
    path: str | Path, kind: str, tensors: Mapping[str, Tensor], about: Mapping[str, Any]
) -> None:
    """Write tensors and their description with a SHA-256 of both; equal content gives equal bytes.

    Args:
        kind: the kind of file, and the version of its format.
    """
    about = {"format": kind, **about}
    about["sha256"] = _checksum(about, tensors)
    # One metadata key only: safetensors writes several in an arbitrary order, but equal runs must
    # give equal bytes.
    metadata = {_KEY: json.dumps(about, sort_keys=True)}
    # Each tensor gets memory of its own: safetensors refuses weights that are shared.
    own = torch.contiguous_format
    copies = {name: tensor.cpu().clone(memory_format=own) for name, tensor in tensors.items()}
    # Not save_file: if killed, it leaves a temporary file that nothing would find and delete.
    write_bytes(path, save(copies, metadata))


def read_tensor_file(path: str | Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a file of `write_tensor_file` and compare it with its SHA-256.

    Raises:
        AuditError: the file is missing, damaged, or not of this kind.
    """
    about, tensors = read_tensors(path, load, _KEY, _checksum, HINT)
    if about.get("format") != kind:
        found = shortened(about.get("format"))
        raise AuditError(f"{path}: holds {found}, expected '{kind}'; {HINT}.")
    return tensors, about


def _checksum(about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """Return one SHA-256 of the description and the tensors' names, types, shapes and contents."""
    described = []
    for name, tensor in sorted(tensors.items()):
        content = checksum(tensor.cpu())
        described.append((name, str(tensor.dtype), list(tensor.shape), content))
    return digest_of([described, about])
