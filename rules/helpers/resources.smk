# What a job asks for: devices, time and memory.

from _card import asks_for_gpu
from _machine import most_cards
from fa_audit.experiments.costs import read_costs
from fa_audit.core.registry import class_literals

# Per run: the count decides the bits, and one-thread runs side by side are fastest on a CPU.
THREADS = 1


def on_cluster():
    """Whether jobs are sent to a cluster's nodes, or this is such a job: the machine here decides nothing then."""
    # A dry run hides its executor; `jobs` is what a cluster has in place of `cores`.
    if workflow.dryrun:
        return workflow.resource_settings.nodes is not None
    return workflow.remote_exec or not workflow.local_exec


def gpus(wildcards):
    """One GPU per job, on a cluster always; on a machine without any, none, so that jobs fill its cores instead."""
    return 1 if on_cluster() or most_cards() else 0


COSTS = read_costs(Path(workflow.basedir) / "benchmarks/costs.json")
MARGIN = 2  # another machine may be slower than the one that was measured


def declared(wildcards, name):
    """What a method's class says of its cost."""
    base = class_literals("fa_audit.methods.method:Method")
    return (base | class_literals(method_entry(wildcards)))[name]


def asked_of(rule):
    """What is written for the resources of a rule; --set-resources and profiles have the last word."""
    resources = workflow.get_rule(rule).resources.items()
    return {"gpu": gpus(None)} | {n: r.raw for n, r in resources if r.raw is not None}


@cache
def device_of(rule):
    return "gpu" if asks_for_gpu(asked_of(rule)) else "cpu"


def training_minutes(wildcards):
    spec = spec_of(wildcards)
    hours = COSTS.training_hours(spec, device_of("train_network"))
    if hours is None:
        return round(30 + 2 * spec.epochs * declared(wildcards, "relative_time"))
    return round(30 + MARGIN * 60 * hours)


def audit_minutes(wildcards):
    hours = COSTS.audit_hours(spec_of(wildcards), device_of("audit_network"))
    return round(15 + MARGIN * 60 * (hours or 0))


def training_memory(wildcards):
    return memory(wildcards, "train_network")


def audit_memory(wildcards):
    return memory(wildcards, "audit_network") + 1000


def memory(wildcards, rule):
    """Main memory, which a GPU's job needs too: where it was not measured there, as much as on a CPU."""
    spec = spec_of(wildcards)
    measured = COSTS.memory_mb(spec, device_of(rule)) or COSTS.memory_mb(spec, "cpu") or 0
    return max(2000, round(1.25 * measured)) + declared(wildcards, "memory_mb")
