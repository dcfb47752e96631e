"""Hostile configurations, planned by Snakemake itself: a plan or one readable error, and no file anywhere."""

from collections import Counter
from pathlib import Path

import pytest
from forks import snakemake_calls
from hostile_configs import KINDS, hostile_config
from projects import copy_sources

ALL, SAMPLE = 1000, 40  # configurations, and how many of them in the ordinary suite
PARTS = [range(first, first + 160) for first in range(SAMPLE, ALL, 160)]  # for two cores to share


@pytest.fixture
def project(tmp_path):
    """A project deep inside a folder of its own, so that a path that climbs out of it is still seen."""
    (tmp_path / "around/it").mkdir(parents=True)
    return copy_sources(tmp_path / "around/it/project")


def surroundings(project):
    """Every file of the project and around it, but for Snakemake's own records, compiled modules and configurations."""
    around = project.parents[2]
    own = (".snakemake", "__pycache__", "hostile")
    return {path for path in around.rglob("*") if not set(own) & set(path.relative_to(around).parts)}


def problem(outcome):
    """What is wrong with the answer to a configuration; empty if nothing is."""
    lines = outcome.said.splitlines()
    ours = [number for number, line in enumerate(lines) if line.startswith("fa-audit: ")]
    planned = "Building DAG of jobs..." in lines
    if "Traceback" in outcome.said:
        return "a traceback"
    if outcome.status == 0:
        return "" if planned and not ours else "no plan"
    if outcome.status != 1 or len(ours) != 1:
        return f"status {outcome.status} and {len(ours)} errors"
    more = [line for line in lines[ours[0] + 1 :] if not line.startswith("  ")]
    printable = all(line.isprintable() for line in lines[ours[0] :])
    return "" if printable and not more and len(lines[ours[0]]) < 2000 else "an error that nobody can read"


@pytest.mark.parametrize(
    "numbers",
    [range(SAMPLE), *(pytest.param(part, marks=pytest.mark.faults) for part in PARTS)],
    ids=lambda numbers: f"{numbers[0]}-{numbers[-1]}",
)
def test_a_configuration_is_planned_or_refused_in_one_readable_error_and_makes_no_file(project, numbers):
    cases = {number: hostile_config(number) for number in numbers}
    (project / "hostile").mkdir()
    for number, (_, text) in cases.items():
        (project / f"hostile/{number}.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
    before = surroundings(project)
    dry_run = ["-n", "--quiet", "--resources", "gpu=0", "--configfile"]
    outcomes = snakemake_calls(project, [([*dry_run, f"hostile/{number}.yaml"], {}) for number in numbers])
    assert surroundings(project) == before and not Path("/tmp/fa-audit-out").exists()
    wrong = {
        f"{number}, {kind}: {said}": outcome.said[-500:]
        for (number, (kind, _)), outcome in zip(cases.items(), outcomes, strict=True)
        if (said := problem(outcome))
    }
    assert not wrong, "\n".join(f"{case}\n{said}" for case, said in wrong.items())
    statuses = Counter((kind, outcome.status) for (kind, _), outcome in zip(cases.values(), outcomes, strict=True))
    assert {kind for kind, _ in statuses} == set(KINDS) and {status for _, status in statuses} == {0, 1}
    assert statuses["valid", 0] and not statuses["huge grid", 0], statuses
