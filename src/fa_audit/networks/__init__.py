"""Registry of architectures: name -> class, and the options of each with their defaults.

One new file and an entry in each dictionary here add an architecture; every architecture has a `width` and a `depth`.
This file holds names only and imports no torch.
"""

from typing import Any

ARCHITECTURES: dict[str, str] = {
    "resmlp": "fa_audit.networks.resmlp:ResMLP",
    "vit_mini": "fa_audit.networks.vit_mini:ViTMini",
    "small_resnet": "fa_audit.networks.small_resnet:SmallResNet",
    "bn_cnn": "fa_audit.networks.bn_cnn:BatchNormCNN",
    "student_mlp": "fa_audit.networks.student_mlp:StudentMLP",
}

ARCHITECTURE_OPTIONS: dict[str, dict[str, Any]] = {
    "resmlp": {"width": 256, "depth": 4, "terminal_norm": True, "residual": True},
    "vit_mini": {"width": 128, "depth": 4},
    "small_resnet": {"width": 64, "depth": 4},
    "bn_cnn": {"width": 128, "depth": 3},
    "student_mlp": {"width": 128, "depth": 4},
}
