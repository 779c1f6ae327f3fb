"""pyproject.toml, environment.yml and constraints.txt name the same dependencies."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONDA_NAMES = {"pytorch": "torch"}


def in_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return set(project["dependencies"]), set().union(*project["optional-dependencies"].values())


def test_the_conda_environment_names_the_same_set():
    lines = (ROOT / "environment.yml").read_text().split("dependencies:")[1].splitlines()
    names = {
        match[1] for line in lines if (match := re.fullmatch(r"  - ([\w-]+)(>=[\d.]+)?", line))
    }
    assert {CONDA_NAMES.get(n, n) for n in names - {"python", "pip"}} == in_pyproject()[0]


def test_the_constraints_pin_every_dependency_and_nothing_else():
    lines = [
        line
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if not line.startswith("#")
    ]
    names = dict(line.split("==") for line in lines)
    assert set(names) == set.union(*in_pyproject())
    assert all(re.fullmatch(r"[\d.]+", version) for version in names.values())
