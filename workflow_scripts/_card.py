"""A card for each GPU job, whoever started it: a job holds the lock of its card for as long as it computes.

A lock is the name of a socket in the system's own table, not a file: all users and folders of a machine see the same
table, nothing in it can be in the way of anybody's permissions, and the system forgets a name when its holder dies,
however it dies. `grep fa-audit /proc/net/unix` shows the cards that are held. The table is that of the network's name
space: containers with a network of their own do not see each other's locks and must be given different cards.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from fa_audit.core.errors import AuditError

SHARING = "FA_AUDIT_JOBS_PER_GPU"
log = logging.getLogger("workflow")


def asks_for_gpu(resources: Mapping[str, object]) -> bool:
    """Whether a job with these resources, as numbers and texts, is given a GPU or a share of one."""
    return bool(resources.get("gpu")) or str(resources.get("gres")).lstrip("\"'").startswith(("gpu", "shard"))


def jobs_per_card() -> int:
    """How many jobs may share a card: one, unless the environment variable says otherwise.

    Raises:
        AuditError: it says something else than a number.
    """
    text = os.environ.get(SHARING, "1")
    if not re.fullmatch("[1-9][0-9]?", text):
        raise AuditError(f"{SHARING}: found '{text}'; expected an integer 1..99, the number of jobs that share a GPU.")
    return int(text)


def visible_cards() -> list[str]:
    """A name for every card that CUDA shows this process: the same whatever other cards are hidden from it.

    The driver knows a slice of a card by its own name only where CUDA_VISIBLE_DEVICES gives it, in the first place.
    """
    import torch

    shown = [entry.strip() for entry in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    cards = [str(torch.cuda.get_device_properties(index).uuid) for index in range(torch.cuda.device_count())]
    return shown[: len(cards)] if shown[0].startswith("MIG-") else cards


@contextmanager
def card_of_its_own(cards: Sequence[str]) -> Iterator[int]:
    """Hold one of the cards, and wait for one where others hold them all; yields its index in the list.

    Args:
        cards: their names, at least one.
    """
    jobs, waiting = jobs_per_card(), False
    while (held := _free_card(cards, jobs)) is None:
        if not waiting:
            log.info("waiting: other jobs hold every GPU (%s)", ", ".join(cards))
        waiting = True
        time.sleep(1)
    index, lock = held
    with lock:
        yield index


def _free_card(cards: Sequence[str], jobs: int) -> tuple[int, socket.socket] | None:
    """The first card with a free place, every card's first place before any second, and its lock."""
    for place in range(jobs):
        for index, card in enumerate(cards):
            lock = socket.socket(socket.AF_UNIX)
            try:
                lock.bind(f"\0fa-audit/{card}/{place}")  # \0: a name without a file
                return index, lock
            except OSError as error:
                lock.close()
                if error.errno != errno.EADDRINUSE:
                    raise
    return None
