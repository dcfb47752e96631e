"""Check limits of GPU jobs and of memory before the first job starts."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterable, Mapping
from itertools import accumulate
from math import ceil

from fa_audit.core.errors import AuditError
from fa_audit.core.gpu import (
    SHARING,
    asks_for_gpu,
    jobs_per_gpu,
    smallest_gpu_mb,
    visible_gpu_count,
)

USUAL = 4  # GPUs that may be in use at once, as in profiles/slurm


def check_address_space() -> None:
    """If the address space is limited, check in another process that torch can be loaded.

    Raises:
        AuditError: torch cannot be loaded.
    """
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return
    done = subprocess.run(
        [sys.executable, "-c", "import torch"], capture_output=True, errors="replace"
    )
    if done.returncode:
        why = done.stderr.strip().rpartition("\n")[2]
        raise AuditError(
            f"found a limit of {limit // 1024} kB of address space, in which torch cannot be "
            f"loaded ({why}). Raise it:"
            " ulimit -v unlimited, or ask your batch system for more memory."
        )


def check_limit(limits: Mapping[str, int]) -> None:
    """Check that this machine's GPUs can take as many jobs as `limits` allow at once.

    Args:
        limits: the workflow's limits, by the names of the resources.

    Raises:
        AuditError: `limits` has no entry ``gpu``, or this entry is too large.
    """
    limit, gpus, jobs = limits.get("gpu"), visible_gpu_count(), jobs_per_gpu()
    if limit is None:
        raise AuditError(
            "found no limit of GPU jobs: --resources or another profile replaced the one in "
            "profiles/default. Add"
            f" --resources gpu={gpus * jobs} (gpu=0: compute on the CPU)."
        )
    if limit > gpus * jobs:
        raise AuditError(
            f"--resources gpu={limit}: found room for {gpus * jobs} (GPUs: {gpus}, jobs on "
            f"each: {jobs}). Use"
            f" --resources gpu={gpus * jobs}, or set {SHARING}, so that several jobs share a GPU."
        )


def check_memory(limits: Mapping[str, int], needs: Iterable[int]) -> None:
    """Check that the jobs that will share a GPU fit into its memory, if its size is known.

    Args:
        limits: as `check_limit` accepted them.
        needs: GPU memory of every run, in MB. Jobs are spread over the GPUs; at worst the largest
            jobs share one.

    Raises:
        AuditError: the jobs do not fit.
    """
    gpus, memory = visible_gpu_count(), smallest_gpu_mb()
    jobs = ceil(limits["gpu"] / gpus)
    if memory is None or not jobs:
        return
    together = list(accumulate(sorted(needs, reverse=True)[:jobs]))
    fitting = sum(need <= memory for need in together)
    if fitting < len(together):
        others = (
            f"--resources gpu={fitting * gpus}"
            if fitting
            else "--resources gpu=0, which computes on the CPU"
        )
        raise AuditError(
            f"--resources gpu={limits['gpu']} is too large: found {jobs} jobs on a GPU of {memory} "
            f"MB in the worst case; the {len(together)} largest jobs of this configuration need "
            f"{together[-1]} MB together (benchmarks/costs.json, docs/cluster.md). Use {others}."
        )


def check_cluster_limits(
    asked: Mapping[str, Mapping[str, object]], limits: Mapping[str, int]
) -> str:
    """Check that the number of GPUs requested from a cluster at once is limited; return the limit
    in words: ``at most 4 GPUs at a time (gpu)``, or ``CPUs only`` if no rule asks for GPUs.

    Args:
        asked: resources of every rule that may be sent to the cluster, before `limits` apply.

    Raises:
        AuditError: a rule asks for GPUs, and their number is not limited, or limited to 0.
    """
    caps = set()
    for rule, resources in asked.items():
        if not asks_for_gpu(resources):
            continue
        cap = "gpu" if resources.get("gpu") else "cards"
        if not resources.get(cap):
            raise AuditError(
                f"profiles/slurm: set-resources gives rule {rule} a gres '{resources.get('gres')}' "
                f"and no {cap}, so that"
                f" nothing limits how many GPUs are asked for at once. Write {cap}: 1 beside it."
            )
        if limits.get(cap) is None:
            raise AuditError(
                f"found no limit of GPUs ({cap}): --resources or another profile replaced the one"
                f" in profiles/slurm. Add --resources {cap}={USUAL}."
            )
        if limits[cap] == 0:
            raise AuditError(
                f"{cap}=0 in --resources does not reach the jobs on a cluster's nodes. To compute "
                "on the nodes' CPUs, replace it"
                " by --set-resources train_network:gpu=0 audit_network:gpu=0 audit_model:gpu=0"
            )
        caps.add(cap)
    return (
        " and ".join(f"at most {limits[cap]} GPUs at a time ({cap})" for cap in sorted(caps))
        or "CPUs only"
    )
