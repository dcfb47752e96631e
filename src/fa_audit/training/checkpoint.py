"""Tensors in safetensors, everything else in JSON: nothing in these files can execute."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fa_audit.core.errors import AuditError, listed, shortened
from fa_audit.core.files import FOREIGN, write_bytes
from fa_audit.data.data_file import checksum
from fa_audit.experiments.spec import RunSpec
from fa_audit.methods import METHODS
from fa_audit.methods.method import Method
from fa_audit.networks import ARCHITECTURES
from fa_audit.training.learner import Learner, build, load_method

log = logging.getLogger(__name__)
FORMAT = "fa-audit checkpoint 1"
RESUME_FORMAT = "fa-audit resume 1"
HARMLESS = 10**8  # elements, 400 MB
COPIES = 10  # of a network while it is built; 4 were measured
LONGEST = 500  # letters of a message of torch
LARGEST_COUNT, LARGEST_FACTOR = 10_000, 1e6  # constants of a method in a file, far above what trains anything
CURE = "train the run again or name another file"


def learner_tensors(learner: Learner) -> dict[str, Tensor]:
    """Every tensor of a learner, named ``network.*`` and ``state.*``."""
    parts = {"network": learner.network, "state": learner.state}
    return {f"{part}.{name}": tensor for part, module in parts.items() for name, tensor in module.state_dict().items()}


def load_learner_tensors(learner: Learner, tensors: dict[str, Tensor]) -> None:
    """Copy what `learner_tensors` named into a learner built from the same specification.

    Raises:
        RuntimeError: a name, a shape or a type does not fit.
    """
    for name, own in learner_tensors(learner).items():
        if name in tensors and tensors[name].dtype != own.dtype:  # torch would convert it
            raise RuntimeError(f"{name} is of {tensors[name].dtype}, expected {own.dtype}")
    for part, module in {"network": learner.network, "state": learner.state}.items():
        module.load_state_dict(_under(part, tensors))


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(f"{prefix}."): value for name, value in tensors.items() if name.startswith(f"{prefix}.")}


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
    _save(path, FORMAT, learner_tensors(learner), about)


def load_checkpoint(path: str | Path, device: torch.device | str = "cpu", *, method: Method | None = None) -> Learner:
    """Rebuild the learner that `save_checkpoint` wrote.

    A file never decides which code runs: it can name registered methods and architectures only.

    Args:
        method: constants and functions to use, instead of those that the file names; required if its method is not
            registered. A file without constants, of an older version, stands for the defaults.

    Raises:
        AuditError: the file is missing, truncated, foreign, executable, does not fit its specification, or names a
            method that is not registered and that `method` does not replace.
    """
    tensors, about = _load(path, FORMAT)
    try:
        learner = _learner_of(tensors, about, method, str(path))
    except (*FOREIGN, RuntimeError, AssertionError) as error:
        odd = "" if isinstance(error, AuditError) else "the tensors do not fit the specification stored with them: "
        told = " ".join(str(error).split())[:LONGEST].rstrip(" .")
        raise AuditError(f"{path}: {odd}{told}; {CURE}.") from error
    return learner.to(device)


def _learner_of(tensors: dict[str, Tensor], about: dict[str, Any], method: Method | None, path: str) -> Learner:
    """The learner of a checkpoint's contents; raises whatever comes where they are not what was written."""
    spec = RunSpec.from_dict(about["spec"])
    if spec.architecture not in ARCHITECTURES:
        raise AuditError(f"the architecture {shortened(spec.architecture)} is none of fa-audit's own: not loaded")
    method = _method_of(spec.method, about.get("method", {}), method, path)
    _check_sizes(spec, [*about["image_shape"], about["classes"]], len(tensors))
    with _NoMoreThan(sum(tensor.numel() for tensor in tensors.values())):
        learner = build(spec, tuple(about["image_shape"]), about["classes"], method)
    load_learner_tensors(learner, tensors)
    return learner


def _check_sizes(spec: RunSpec, sizes: list[Any], tensors: int) -> None:
    """Find sizes of no network before one is built from them."""
    options = dict(spec.architecture_options)
    sizes += [value for value in options.values() if not isinstance(value, bool)]
    if odd := [size for size in sizes if type(size) is not int or size < 1]:
        raise ValueError(f"it has the size {shortened(odd[0])}, expected an integer >= 1")
    if not spec.shallow and options["depth"] > tensors:
        raise ValueError(f"it describes {shortened(options['depth'])} blocks, more than there are tensors")


class _NoMoreThan(TorchFunctionMode):
    """Inside it, a network of more than a number of elements is not built to its end, unless it is small anyway.

    A specification is a few letters, whatever the size of the network that it describes: a damaged one must not cost
    the machine's memory before its tensors are found not to fit.
    """

    def __init__(self, elements: int) -> None:
        super().__init__()
        self.left = max(HARMLESS, COPIES * elements)

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        self.left -= made.numel() if isinstance(made, Tensor) else 0
        if self.left < 0:
            raise RuntimeError("it describes a larger network than that of the tensors")
        return made


def _described(method: Method) -> dict[str, Any]:
    """Class and constants of a method, as plain JSON types."""
    kind = f"{type(method).__module__}:{type(method).__qualname__}"
    try:
        return {"class": kind, "constants": json.loads(json.dumps(asdict(method)))}
    except (TypeError, ValueError) as error:
        raise AuditError(
            f"method '{kind}': constants found that are not JSON ({error}); expected numbers, strings, booleans, None"
            " and lists or dictionaries of them. Keep tensors in the state that `init_state` returns."
        ) from error


def _method_of(name: str, stored: Mapping[str, Any], given: Method | None, path: str) -> Method:
    """The method of a checkpoint: `given`, or else the registered class with the constants of the file."""
    if given is not None:
        if stored and stored != _described(given):
            log.warning("%s was written with %s; going on with %s", path, stored, _described(given))
        return given
    registered = METHODS.get(name)
    if registered is None or stored.get("class", registered) != registered:
        raise AuditError(
            f"written by the method {shortened(name)} (class {shortened(stored.get('class'))}), which is none of"
            " fa-audit's own. A file does not decide what is imported: pass load_checkpoint(path, method=YourMethod()),"
            " or --method package.module:ClassName on the command line"
        )
    return _with_constants(load_method(name), stored.get("constants", {}))


def _with_constants(default: Method, constants: Mapping[str, Any]) -> Method:
    """A registered method with the constants of a file in place of its defaults."""
    known = asdict(default)
    odd = [
        f"{shortened(name)[1:-1]}={shortened(value)}"
        for name, value in constants.items()
        if name not in known or not _fits(value, known[name])
    ]
    if odd:
        kind, expected = type(default).__name__, ", ".join(f"{k}={value!r}" for k, value in known.items())
        raise AuditError(f"odd constants of {kind}: {listed(odd[:3])}; expected e.g. {expected or 'none'}")
    return replace(default, **constants)


def _fits(value: object, default: object) -> bool:
    """Whether a constant of a file can stand in the place of a registered method's default, which is a plain scalar.

    Sizes, steps and draws decide how long an audit takes: no file may make it endless.
    """
    if type(default) is int:
        return type(value) is int and 1 <= value <= LARGEST_COUNT
    if type(default) is float:
        return type(value) in (int, float) and -LARGEST_FACTOR <= value <= LARGEST_FACTOR  # not NaN
    return type(value) is type(default)


@dataclass(frozen=True)
class Resume:
    """The file from which an interrupted training goes on.

    Attributes:
        path: where it lies.
        fingerprint: names everything that decides the bits of the run. A file with another fingerprint is
            another run's past and is not used.
    """

    path: Path
    fingerprint: str

    def save(self, learner: Learner, optimiser: torch.optim.Optimizer, progress: dict[str, Any]) -> None:
        """Replace the file by the present state; `progress` must be plain JSON."""
        moments = {
            f"optimiser.{index}.{name}": value
            for index, entry in optimiser.state_dict()["state"].items()
            for name, value in entry.items()
        }
        # The history grows with the epochs and a safetensors header is bounded: the progress goes in as a tensor.
        written = torch.frombuffer(bytearray(json.dumps(progress).encode()), dtype=torch.uint8)
        tensors = learner_tensors(learner) | moments | {"progress": written}
        _save(self.path, RESUME_FORMAT, tensors, {"fingerprint": self.fingerprint})

    def load(self, learner: Learner, optimiser: torch.optim.Optimizer) -> dict[str, Any] | None:
        """Restore the state and return `progress`; None where there is nothing to go on from."""
        if not self.path.exists():
            return None
        try:
            tensors, about = _load(self.path, RESUME_FORMAT)
        except AuditError as error:
            log.warning("starting over: %s", error)
            return None
        if about.get("fingerprint") != self.fingerprint:
            log.info(
                "starting over: %s is of another specification, data, code, version of torch or model of the device",
                self.path,
            )
            return None
        load_learner_tensors(learner, tensors)
        moments: dict[int, dict[str, Tensor]] = {}
        for name, value in _under("optimiser", tensors).items():
            index, key = name.split(".")
            moments.setdefault(int(index), {})[key] = value
        optimiser.load_state_dict({"state": moments, "param_groups": optimiser.state_dict()["param_groups"]})
        return json.loads(tensors["progress"].numpy().tobytes())

    def clear(self) -> None:
        """Remove the file once the run's results are safe."""
        self.path.unlink(missing_ok=True)


def _checksum(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> str:
    """One SHA-256 over what is said of the tensors, and their names, types, shapes and contents."""
    told = [(name, str(t.dtype), list(t.shape), checksum(t.detach().cpu())) for name, t in sorted(tensors.items())]
    return hashlib.sha256(json.dumps([told, about], sort_keys=True).encode()).hexdigest()


def _save(path: str | Path, kind: str, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    about = {"format": kind} | about
    about |= {"sha256": _checksum(tensors, about)}
    # One metadata key only: safetensors writes several in an arbitrary order, and equal runs must be equal bytes.
    metadata = {"fa_audit": json.dumps(about, sort_keys=True)}
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # Not save_file: killed, it leaves a temporary file under a name of its own.
    write_bytes(path, save(contiguous, metadata))


def _load(path: str | Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(path, framework="pt") as stream:
            about = json.loads((stream.metadata() or {})["fa_audit"])
            tensors = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118 (not a dict)
        recorded, written_as = about.pop("sha256", None), about["format"]  # files of older versions have no SHA-256
        whole = recorded in (None, _checksum(tensors, about))
    except (OSError, MemoryError, SafetensorError, *FOREIGN) as error:
        found = "no such file" if not Path(path).exists() else "truncated, foreign or executable file"
        told = " ".join(str(error).split())[:LONGEST].rstrip(" .")
        raise AuditError(
            f"{path}: {found} ({type(error).__name__}: {told}). Expected safetensors written by fa-audit; {CURE}."
        ) from error
    if written_as != kind:
        raise AuditError(f"{path}: holds {shortened(written_as)}, expected '{kind}'; {CURE}.")
    if not whole:
        raise AuditError(f"{path}: altered (SHA-256 differs); {CURE}.")
    return tensors, about
