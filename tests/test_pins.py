"""constraints.txt, envs/fa-audit.yaml and pyproject.toml name the same versions."""

import tomllib
from importlib.metadata import distributions

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from projects import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def by_name(lines: list[str]) -> dict[str, Requirement]:
    requirements = [
        Requirement(line) for line in lines if not line.startswith("fa-audit[")
    ]  # its own extras
    named = {canonicalize_name(requirement.name): requirement for requirement in requirements}
    assert len(named) == len(requirements), "a package is named twice"
    return named


def constraints() -> dict[str, Requirement]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return by_name([line for line in lines if line.strip() and not line.startswith("#")])


def environment() -> dict[str, Requirement]:
    content = yaml.safe_load((ROOT / "envs" / "fa-audit.yaml").read_text())
    assert content["channels"] == ["conda-forge", "nodefaults"]
    return by_name(next(part["pip"] for part in content["dependencies"] if isinstance(part, dict)))


def pinned(requirement: Requirement) -> str:
    """The one version that a requirement allows."""
    (clause,) = requirement.specifier
    assert clause.operator == "==" and "*" not in clause.version, f"{requirement} is no exact pin"
    assert not requirement.extras and not requirement.marker and not requirement.url
    return clause.version


def test_constraints_are_exact_and_cover_the_direct_dependencies() -> None:
    pins = constraints()
    assert all(map(pinned, pins.values()))
    direct = by_name(
        PROJECT["dependencies"]
        + [line for extra in PROJECT["optional-dependencies"].values() for line in extra]
    )
    assert direct.keys() <= pins.keys()
    for name, requirement in direct.items():
        assert requirement.specifier.contains(pinned(pins[name])), (
            f"{pins[name]} against {requirement}"
        )


def test_conda_environment_has_the_direct_dependencies_with_the_same_pins() -> None:
    pins, conda = constraints(), environment()
    extras = ("workflow", "datasets", "plots", "report")
    used = [line for name in extras for line in PROJECT["optional-dependencies"][name]]
    assert (
        used[0] == "fa-audit[datasets,plots,report]"
        and conda.keys() == by_name(PROJECT["dependencies"] + used).keys()
    )
    assert "pygments" in conda  # which `snakemake --report` imports and Snakemake does not ask for
    for name, requirement in conda.items():
        assert pinned(requirement) == pinned(pins[name])


def test_every_pinned_package_installs_on_the_first_releases_of_python_3_11_and_3_12() -> None:
    pins = constraints()
    for found in distributions():
        name = found.metadata["Name"]
        if canonicalize_name(name) in pins:
            asked = SpecifierSet(found.metadata.get("Requires-Python") or "")
            assert asked.contains("3.11.0") and asked.contains("3.12.0"), f"{name} needs {asked}"
