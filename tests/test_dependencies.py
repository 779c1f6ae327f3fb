"""pyproject.toml, environment.yml and constraints.txt name the same dependencies."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONDA_NAMES = {"pytorch": "torch"}


def names_in(listed):
    """The distributions, without versions and without the course's own extras."""
    names = {re.split(r"[<>=!~;\[ ]", one)[0] for one in listed}
    return names - {"batchnorm-to-int8"}


def in_pyproject():
    """What everybody needs, and what each use needs beside it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {use: names_in(listed) for use, listed in project["optional-dependencies"].items()}
    return names_in(project["dependencies"]), extras


def test_the_conda_environment_has_what_studying_presenting_and_grading_need():
    lines = (ROOT / "environment.yml").read_text().split("dependencies:")[1].splitlines()
    names = {
        match[1] for line in lines if (match := re.fullmatch(r"  - ([\w-]+)(>=[\d.]+)?", line))
    }
    everybody, extras = in_pyproject()
    wanted = everybody | extras["study"] | extras["grade"]
    assert {CONDA_NAMES.get(name, name) for name in names - {"python", "pip"}} == wanted


def test_the_constraints_pin_every_dependency_and_nothing_else():
    lines = [
        line
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if not line.startswith("#")
    ]
    names = dict(line.split("==") for line in lines)
    everybody, extras = in_pyproject()
    assert set(names) == everybody.union(*extras.values())
    assert all(re.fullmatch(r"[\d.]+", version) for version in names.values())


def bounds_in(listed):
    """The lowest versions that are named: name -> version."""
    return dict(one.split(">=") for one in listed if ">=" in one)


def test_the_lowest_versions_are_those_that_are_tried_and_conda_has_the_same():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    named = project["dependencies"] + extras["study"] + extras["grade"]
    lowest = bounds_in(named)
    oldest = tomllib.loads((ROOT / "course" / "versions.toml").read_text())["oldest"]
    assert {name: version.removesuffix(".*") for name, version in oldest.items()} == lowest
    text = (ROOT / "environment.yml").read_text()
    conda = bounds_in(re.findall(r"^  - ([\w-]+>=[\d.]+)$", text, re.M))
    del conda["python"]
    assert {CONDA_NAMES.get(name, name): version for name, version in conda.items()} == lowest
