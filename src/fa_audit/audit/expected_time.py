"""The expected time of an audit."""

from __future__ import annotations

import math
import time

from fa_audit.audit.backward import CHECKED
from fa_audit.audit.backward import SAMPLES as CHECKED_SAMPLES
from fa_audit.audit.credit_metrics import DRAWS
from fa_audit.audit.diagnostics import Batch
from fa_audit.audit.given_credits import Given
from fa_audit.core.vectors import median_norm
from fa_audit.networks.network import Network
from fa_audit.networks.trace import LossFunction, reference, untouched

TIMED, MEASURED = 8, 2  # samples of the trial pass, and its longest time in seconds


def expected_seconds(
    network: Network, where: Batch, batches: list[Batch], loss_fn: LossFunction, credits: Given | None
) -> float:
    """Estimate how long an audit takes, from one pass of a few samples forward and backward.

    A pass forward counts a third of such a pass; one in float64 takes four times as long.
    """
    one = math.inf
    for size in (TIMED, TIMED, len(where[0])):  # the first call prepares; few samples take relatively long
        if size > TIMED and one * size > MEASURED:
            break
        x, y = (part[:size] for part in where)
        with untouched(network):
            started = time.perf_counter()
            median_norm(reference(network, x, y, loss_fn).gradients[0])  # to read a number is to wait for it
            one = min(one, (time.perf_counter() - started) / len(x))
    samples, states = len(where[0]), len(network.blocks) + 1
    passes = 1.3 * sum(len(x) for x, _ in batches) + 2 * samples + CHECKED * 4 / 3 * states * CHECKED_SAMPLES
    if credits:
        moved = states if credits.blocks is None else 2 * len(credits.blocks)
        passes += 4 / 3 * samples * moved * (credits.directions + 2) + samples * (DRAWS if credits.draw else 1)
    return one * passes
