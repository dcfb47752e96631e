# The resources of jobs, the checks before the first job, and how a signal ends all jobs.

import signal
from contextlib import suppress

import psutil
from fa_audit.core import limits
from fa_audit.core.folder import check_room, check_writable, claim
from fa_audit.core.gpu import asks_for_gpu, visible_gpu_count
from fa_audit.data.data_file import check_data_files
from fa_audit.experiments.costs import own_benchmarks, read_costs
from fa_audit.experiments.read_grid import check_data_root
from fa_audit.training import sidecar
from snakemake_interface_logger_plugins.common import LogEvent

TIMED = own_benchmarks() if MODE == ExecMode.DEFAULT else ()
COSTS = read_costs(PROJECT / "benchmarks/costs.json", TIMED)
COMPUTING = ("train_network", "audit_network", "audit_model")
WRITTEN = ("results", ".snakemake")
FAILURES = (LogEvent.JOB_ERROR, LogEvent.GROUP_ERROR, LogEvent.ERROR)
# Threads per run; --set-threads can change it. Their number changes the rounding; on a CPU,
# one-thread runs side by side are fastest.
THREADS = 1


def job_threads(wildcards, threads):
    """Return the number of threads that Snakemake gives the job, which --set-threads may change."""
    return threads


def on_cluster():
    """Return whether cluster nodes run the jobs; this machine's devices then do not matter."""
    if DRY_RUN:  # a dry run hides its executor; clusters take --jobs instead of --cores
        return LIMITS["_nodes"].value is not None
    # Outside a dry run, --jobs does not imply a cluster: one machine takes --jobs, too.
    return MODE == ExecMode.REMOTE or not workflow.local_exec


def in_storage():
    """Return whether results are in a remote storage, which no path on this machine reaches."""
    return rules.build_scorecard.output.csv.is_storage


def group_of(wildcards):
    """Return the group that is sent to a cluster as one job: a run's training and its audit.

    With --group-components run=2 two runs are one job. A group must not wait for a file that a job
    outside makes from the group's results, so a run that is copied from another setting has no
    group.
    """
    return "run" if on_cluster() and key_of(wildcards) not in GRID.duplicate_runs else None


def group_of_training(wildcards):
    # An audit reads its baseline's JSON, which a job outside the groups makes from the baseline's
    # training. This training must not be in the audit's group: the group would wait for the job,
    # and the job for the group.
    is_baseline = wildcards.run in GRID.setting(wildcards.setting).baselines
    return "baseline" if is_baseline and on_cluster() else group_of(wildcards)


def gpus(wildcards):
    """Return 1, but 0 if jobs run on this machine and it has no GPU: they then fill its cores."""
    return 1 if on_cluster() or visible_gpu_count() else 0


def asked_of(rule):
    """Return a rule's resources, after --set-resources and profiles have replaced values."""
    resources = getattr(rules, rule).rule.resources.items()
    return {"gpu": gpus(None)} | {n: r.raw for n, r in resources if r.raw is not None}


@cache
def device_of(rule):
    return "gpu" if asks_for_gpu(asked_of(rule)) else "cpu"


def estimated(estimate, rule):
    """Return a function that calls `estimate` with a job's run and the device of `rule`."""
    return lambda wildcards: estimate(spec_of(wildcards), device_of(rule))


def devices():
    """Return where jobs compute, in words; a missing or too large limit of GPU jobs is an error."""
    given = {n: r.value for n, r in LIMITS.items() if not n.startswith("_")}
    if on_cluster():
        asked = {rule: asked_of(rule) for rule in COMPUTING}
        return f"nodes of a cluster, {limits.check_cluster_limits(asked, given)}"
    if not visible_gpu_count():
        return "CPU"
    limits.check_limit(given)
    limits.check_memory(given, (COSTS.gpu_memory_mb(spec(key)) for key in GRID.all_run_keys()))
    return f"GPU, {given['gpu']} at a time" if given["gpu"] else "CPU"


def datasets():
    entries = [part.common for part in GRID.settings.values()]
    return {entry["dataset"] for entry in [*entries, *config.get("models", {}).values()]}


def stop(number, frame):
    """End the jobs, then Snakemake, as Ctrl-C in a terminal does; none of them counts as failed.

    Without this handler, a signal to Snakemake alone, as at a container's end, would make it wait
    for its jobs for hours. A closed terminal (SIGHUP) would end it and leave the jobs running.
    """
    logger.addFilter(lambda record: getattr(record, "event", None) not in FAILURES)
    for job in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            job.terminate()
    raise KeyboardInterrupt


def check_networks():
    """Check the files that the planned audits will read.

    Snakemake deletes an older audit before its job can find a damaged file.
    """
    jobs = planned_jobs()[1]
    made = {path for job in jobs for path in job.output}
    for job in jobs:
        if job.rule.name != "audit_network":
            continue
        key, files = RunKey.of(job.output[0]), job.input
        if files.checkpoint not in made:
            both = {"checkpoint": files.checkpoint, "trajectory": files.trajectory}
            sidecar.read_training(files.sidecar, spec(key), **both)
        names = GRID.setting(key.setting).baselines_of(key.run).values()
        for name, path in zip(names, files.baselines, strict=True):
            if path not in made:
                sidecar.read_baseline(path, name, spec(key))


@readable
def start_work():
    if not on_cluster():  # a cluster's jobs go on without Snakemake
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores them
                signal.signal(number, stop)
    check_room(WRITTEN)
    claim(paths.LOCK)
    check_data_files(map(data_file, datasets()))
    if not in_storage():
        check_networks()
    if not on_cluster():
        limits.check_address_space()
    say(f"fa-audit: computing on {devices()}; one line per epoch in results/logs/train_network/")
    say(*table_lines())


@readable
def check_command():
    """Refuse a command that would fail at every job, or would run another copy of the library."""
    if PROJECT / "src" != LIBRARY:
        raise AuditError(
            f"fa_audit: found the library in {LIBRARY}; expected {PROJECT / 'src'}. Install it:"
            f" {sys.executable} -m pip install -e {PROJECT}"
        )
    expected = "results/scorecard.csv"
    found = rules.build_scorecard.output.csv
    if found != expected and not in_storage():
        raise AuditError(
            f"module: `prefix:` or `replace_prefix:` turns {expected} into '{found}'; expected"
            " results/ in the working folder. Leave both out."
        )
    check_data_root(config.get("data_root", "data"), datasets(), LINES("data_root"))
    check_writable(WRITTEN)
