"""When a check fires. Every number in one place; docs/protocol.md says where each comes from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Limits of the checks; the first four are the paper's.

    Attributes:
        growth: D1 / (a) fires above this ratio of median state norms across one block.
        reference: D2 / (b) fires below this median ``||g_L||`` (gradient of the batch-mean loss).
        stability: (c) fires above this mean pairwise cosine between batches.
        depth_margin: D3 / (d) fires below this accuracy margin over the frozen baseline (fraction, 0.02 = 2 points).
        saturation: below this per-sample product ``B * median||h_L|| * median||g_L||`` a small gradient comes from
            a saturated loss and not from an exploded state. Ours: healthy and exploded networks lie at 1 to 100,
            a network at 99 % accuracy at 1e-3 and below.
    """

    growth: float = 50.0
    reference: float = 1e-7
    stability: float = 0.30
    depth_margin: float = 0.02
    saturation: float = 1e-2
