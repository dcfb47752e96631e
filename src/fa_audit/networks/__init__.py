"""Registry of architectures: name -> class.

One new file and one line here add an architecture; one that lives elsewhere is named ``package.module:Name`` instead.
Imports no torch.
"""

from functools import cache
from inspect import Parameter
from typing import Any

from fa_audit.core.errors import AuditError, listed
from fa_audit.core.registry import entry_of
from fa_audit.core.source import arguments_of

ARCHITECTURES: dict[str, str] = {
    "resmlp": "fa_audit.networks.resmlp:ResMLP",
    "vit_mini": "fa_audit.networks.vit_mini:ViTMini",
    "small_resnet": "fa_audit.networks.small_resnet:SmallResNet",
    "bn_cnn": "fa_audit.networks.bn_cnn:BatchNormCNN",
    "student_mlp": "fa_audit.networks.student_mlp:StudentMLP",
}
GIVEN = {"image_shape", "classes"}  # by the data set
EXPECTED = (
    "image_shape, classes, depth=N, and options of its own with a number, a text, True or False as default, or None for"
    " a positive number that it chooses itself unless one is given"
)


@cache
def architecture_options(name: str) -> dict[str, Any]:
    """Return the options of an architecture with their defaults, read from its source; `depth` is among them.

    >>> architecture_options("vit_mini")
    {'width': 128, 'depth': 4}

    Raises:
        AuditError: there is no such architecture, or its arguments are not those of one.
    """
    found = arguments_of(entry_of("architecture", ARCHITECTURES, name))
    options = {option: default for option, default in found.items() if option not in GIVEN}
    usable = all(isinstance(default, int | float | str | None) for default in options.values())
    if not (found.keys() >= GIVEN and usable and type(options.get("depth")) is int):
        pairs = (option if default is Parameter.empty else f"{option}={default!r}" for option, default in found.items())
        arguments = listed(pairs) or "none"
        raise AuditError(f"architecture '{name}': found the arguments {arguments}; expected {EXPECTED}.")
    return options
