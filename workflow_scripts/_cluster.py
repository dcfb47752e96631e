"""What a cluster is asked for, looked at before the first job is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from _card import asks_for_gpu
from _command import again_with

from fa_audit.core.errors import AuditError

GRES_CAP = "cards"  # the resource that counts GPUs which come by gres, where `gpu` is 0
USUAL = 4  # the cap in profiles/slurm


def check_requests(executor: Any, jobs: Mapping[str, Any]) -> None:
    """Let Slurm's executor put together what it sends. Later it loses the errors of grouped jobs and waits for ever.

    Args:
        executor: of snakemake-executor-plugin-slurm.
        jobs: one job of every rule that is sent.

    Raises:
        AuditError: it cannot.
    """
    for rule, job in jobs.items():
        try:
            _put_together(executor, job)
        except Exception as error:  # whatever it is, it would be lost
            said = f"{type(error).__name__} {' '.join(str(error).split())}".rstrip(" .")
            raise AuditError(
                f"profiles/slurm: nothing can be sent for rule {rule}: {said}. Correct default-resources or"
                " set-resources there, or the options that replace them (docs/cluster.md, Trouble)."
            ) from error


def _put_together(executor: Any, job: Any) -> None:
    from snakemake_executor_plugin_slurm.submit_string import get_submit_command
    from snakemake_executor_plugin_slurm.utils import set_gres_string
    from snakemake_executor_plugin_slurm.validation import validate_slurm_extra

    validate_slurm_extra(job)
    asked = {"account": next(executor.get_account_arg(job)), "partition": executor.get_partition_arg(job)}
    names = dict.fromkeys(("run_uuid", "slurm_logfile", "comment_str", "workdir"), "")
    get_submit_command(job, asked | names, settings=executor.workflow.executor_settings)
    set_gres_string(job)


def cluster_devices(asked: Mapping[str, Mapping[str, object]], limits: Mapping[str, object]) -> str:
    """Where jobs compute, in words.

    Args:
        asked: resources of every rule that is sent, before limits are applied to them.
        limits: of resources; a resource without one is not limited at all.

    Raises:
        AuditError: a rule asks for GPUs, and nothing limits how many are asked for at once.
    """
    caps = [_cap(rule, resources, limits) for rule, resources in asked.items() if asks_for_gpu(resources)]
    counts = " and ".join(f"at most {limits[cap]} GPUs at a time ({cap})" for cap in dict.fromkeys(caps))
    return f"nodes of a cluster, {counts or 'their CPUs'}"


def _cap(rule: str, resources: Mapping[str, object], limits: Mapping[str, object]) -> str:
    """The resource that limits the GPUs of a rule."""
    cap = "gpu" if resources.get("gpu") else GRES_CAP
    if not resources.get(cap):
        raise AuditError(
            f"profiles/slurm: set-resources gives rule {rule} a gres '{resources.get('gres')}' and no {GRES_CAP}, so"
            f" that nothing limits how many GPUs are asked for at once. Write {GRES_CAP}: 1 beside it."
        )
    if limits.get(cap) is None:
        raise AuditError(
            f"no limit of GPUs ({cap}): --resources and other profiles replace the limit of profiles/slurm."
            f" Run: {again_with(limits, cap, USUAL)}"
        )
    if limits[cap] == 0:
        raise AuditError(
            f"{cap}=0 in --resources does not reach the jobs on a cluster's nodes. To compute on its CPUs, replace it"
            " by --set-resources train_network:gpu=0 audit_network:gpu=0 audit_model:gpu=0"
        )
    return cap
