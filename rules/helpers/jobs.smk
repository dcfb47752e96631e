# The resources that jobs ask for, the checks before the first of them, and their end by a signal.

import signal
from contextlib import suppress

import psutil
from fa_audit.core.folder import check_room, check_writable, claim
from fa_audit.core.gpu import asks_for_gpu, visible_gpu_count
from fa_audit.core.limits import (
    check_address_space,
    check_cluster_limits,
    check_limit,
    check_memory,
)
from fa_audit.data.data_file import check_data_files
from fa_audit.experiments.costs import own_benchmarks, read_costs
from fa_audit.experiments.read_grid import check_data_root
from fa_audit.experiments.spec import RunSpec
from fa_audit.training.sidecar import (
    check_baseline,
    check_run,
    check_spec,
    read_baseline,
    read_sidecar,
)
from snakemake_interface_logger_plugins.common import LogEvent

COSTS = read_costs(
    PROJECT / "benchmarks/costs.json", own_benchmarks() if MODE == ExecMode.DEFAULT else ()
)
COMPUTING = ("train_network", "audit_network", "audit_model")
WRITTEN = ("results", ".snakemake")
FAILURES = (LogEvent.JOB_ERROR, LogEvent.GROUP_ERROR, LogEvent.ERROR)
# Per run: the count decides the bits, and one-thread runs side by side are fastest on a CPU.
THREADS = 1


def on_cluster():
    """Return whether jobs are sent to a cluster's nodes, or this is one: this machine decides nothing then."""
    if DRY_RUN:  # which hides its executor; --jobs is what a cluster has in place of --cores
        return LIMITS["_nodes"].value is not None
    # Not by the limit: on one machine, too, --jobs may be given beside --cores.
    return MODE == ExecMode.REMOTE or not workflow.local_exec


def in_storage():
    """Return whether results are in a storage (--default-storage-provider), where no path of this machine leads."""
    return rules.build_scorecard.output.csv.is_storage


def group_of(wildcards):
    """Return the group that is sent to a cluster as one job: a run's training and its audit.

    With --group-components run=2 two runs are one job. It must not need what is made elsewhere of its own results:
    a baseline's training is in a group of its own, and what is copied from another setting in none.
    """
    key = key_of(wildcards)
    if not on_cluster() or key in GRID.duplicate_runs:
        return None
    return "run"


def group_of_training(wildcards):
    is_baseline = wildcards.run in GRID.setting(wildcards.setting).baselines
    return "baseline" if is_baseline and on_cluster() else group_of(wildcards)


def gpus(wildcards):
    """Return 1, or 0 on a machine without any GPU, where jobs fill the cores instead; 1 on a cluster always."""
    return 1 if on_cluster() or visible_gpu_count() else 0


def asked_of(rule):
    """Return what is written for the resources of a rule; --set-resources and profiles have the last word."""
    resources = getattr(rules, rule).rule.resources.items()
    return {"gpu": gpus(None)} | {n: r.raw for n, r in resources if r.raw is not None}


@cache
def device_of(rule):
    return "gpu" if asks_for_gpu(asked_of(rule)) else "cpu"


def devices():
    """Return where jobs compute, in words; a missing or too large limit of GPU jobs is an error."""
    limits = {n: r.value for n, r in LIMITS.items() if not n.startswith("_")}
    if on_cluster():
        asked = {rule: asked_of(rule) for rule in COMPUTING}
        return f"nodes of a cluster, {check_cluster_limits(asked, limits)}"
    if not visible_gpu_count():
        return "CPU"
    check_limit(limits)
    check_memory(limits, (COSTS.gpu_memory_mb(GRID.spec(key)) for key in GRID.all_run_keys()))
    return f"GPU, {limits['gpu']} at a time" if limits["gpu"] else "CPU"


def datasets():
    entries = [
        *(part.common for part in GRID.settings.values()),
        *config.get("models", {}).values(),
    ]
    return {entry["dataset"] for entry in entries}


def stop(number, frame):
    """End the jobs, then Snakemake, as Ctrl-C in a terminal does; none of them counts as failed.

    Told to stop by itself, as by a container's end, Snakemake would wait for its jobs for hours; a closed terminal
    (SIGHUP) would end it and leave them.
    """
    logger.addFilter(lambda record: getattr(record, "event", None) not in FAILURES)
    for job in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            job.terminate()
    raise KeyboardInterrupt


def stop_by_signals():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
            signal.signal(number, stop)


def check_networks():
    """Check what the audits to come read: Snakemake deletes an older audit before its job can find a damaged file."""
    jobs = list(workflow.dag.needrun_jobs())
    made = {path for job in jobs for path in job.output}
    for job in jobs:
        if job.rule.name != "audit_network":
            continue
        key, files = RunKey.of(job.output[0]), job.input
        if files.checkpoint not in made:
            facts = read_sidecar(files.sidecar)
            both = {"checkpoint": files.checkpoint, "trajectory": files.trajectory}
            check_run(facts, files.sidecar, **both)
            check_spec(RunSpec.from_dict(facts["spec"]), spec(*key), files.sidecar)
        names = GRID.setting(key.setting).baselines_of(key.run).values()
        for name, path in zip(names, files.baselines, strict=True):
            if path not in made:
                check_baseline(read_baseline(path), name, spec(*key), path)


@readable
def start_work():
    if not on_cluster():  # whose jobs go on without Snakemake
        stop_by_signals()
    check_room(WRITTEN)
    claim(paths.LOCK)
    check_data_files(map(data_file, datasets()))
    if not in_storage():
        check_networks()
    if not on_cluster():
        check_address_space()
    say_start(devices())


@readable
def check_command():
    """Refuse what Snakemake would fail at job by job, or do with other code than this."""
    if PROJECT / "src" != LIBRARY:
        raise AuditError(
            f"fa_audit: found the library in {LIBRARY}; expected that of this workflow: {sys.executable} -m pip"
            f" install -e {PROJECT}"
        )
    # A workflow that uses this one as a module may have left the rule out.
    expected = "results/scorecard.csv"
    found = rules.build_scorecard.output.csv if hasattr(rules, "build_scorecard") else expected
    if found != expected and not in_storage():
        raise AuditError(
            f"module: its prefix makes {expected} '{found}'; expected results/ in the working folder. Leave out"
            " `prefix:` and `replace_prefix:`."
        )
    check_data_root(config.get("data_root", "data"), datasets(), LINES("data_root"))
    check_writable(WRITTEN)
