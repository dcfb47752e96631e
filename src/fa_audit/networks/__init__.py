"""Registry of architectures: name -> class, and their options.

To add an architecture, write one file and two lines here. An architecture outside of this package
is named ``package.module:Name`` instead. This file imports no torch.
"""

from functools import cache
from inspect import Parameter, signature
from typing import Any

from fa_audit.core.errors import AuditError, listed

ARCHITECTURES: dict[str, str] = {
    "resmlp": "fa_audit.networks.resmlp:ResMLP",
    "vit_mini": "fa_audit.networks.vit_mini:ViTMini",
    "small_resnet": "fa_audit.networks.small_resnet:SmallResNet",
    "bn_cnn": "fa_audit.networks.bn_cnn:BatchNormCNN",
    "student_mlp": "fa_audit.networks.student_mlp:StudentMLP",
    "mlp": "fa_audit.networks.mlp:MLP",
}
# Options of the registered architectures. Plans read them without importing torch.
OPTIONS: dict[str, dict[str, Any]] = {
    "resmlp": {"width": 256, "depth": 4, "terminal_norm": True, "residual": True, "w2_std": None},
    "vit_mini": {"width": 128, "depth": 4},
    "small_resnet": {"width": 64, "depth": 4},
    "bn_cnn": {"width": 128, "depth": 3},
    "student_mlp": {"width": 128, "depth": 4},
    "mlp": {"width": 512, "depth": 2, "activation": "relu"},
}
GIVEN = {"image_shape", "classes"}  # arguments that the data set determines
_COLLECTED = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


@cache
def architecture_options(name: str) -> dict[str, Any]:
    """Return the options of an architecture, `depth` included, with their defaults.

    >>> architecture_options("vit_mini")
    {'width': 128, 'depth': 4}

    Raises:
        AuditError: the architecture does not exist, cannot be imported, or does not take an
            architecture's arguments.
    """
    if name in OPTIONS:
        return OPTIONS[name]
    # Import for user-defined architectures only; registered ones have their options above.
    from fa_audit.core.registry import load, naming_errors

    with naming_errors("architecture", ARCHITECTURES, name):
        found = arguments_of(load("architecture", ARCHITECTURES, name))
    options = {option: default for option, default in found.items() if option not in GIVEN}
    usable = all(isinstance(default, int | float | str | None) for default in options.values())
    if not (found.keys() >= GIVEN and usable and type(options.get("depth")) is int):
        shown = []
        for option, default in found.items():
            shown.append(option if default is Parameter.empty else f"{option}={default!r}")
        raise AuditError(
            f"architecture '{name}': found the arguments {listed(shown) or 'none'}; expected"
            " image_shape, classes, depth=N, and options whose default is a number, a text, True,"
            " False or None; None stands for a positive number that the architecture chooses."
        )
    return options


def arguments_of(kind: Any) -> dict[str, Any]:
    """Return the arguments of a class or function with their defaults, without ``*args`` and
    ``**options``.

    If an ``__init__`` takes ``**options``, the arguments of the next base class count, too.
    """
    calls = [kind]
    if isinstance(kind, type):
        calls = [vars(base)["__init__"] for base in kind.__mro__ if "__init__" in vars(base)]
    found: dict[str, Any] = {}
    for call in calls:
        parameters = list(signature(call).parameters.values())
        if isinstance(kind, type):
            del parameters[0]  # self
        for one in parameters:
            if one.kind not in _COLLECTED:
                found.setdefault(one.name, one.default)
        if Parameter.VAR_KEYWORD not in [one.kind for one in parameters]:
            break
    return found
