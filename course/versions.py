"""`python -m course.versions SET ...`: lessons and fast tests with other versions of the libraries.

The sets stand in versions.toml. Each gets a virtual environment in build/versions/, with this
Python; `TORCH_INDEX` names another index for torch and torchvision.
"""

import argparse
import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

from course.hosted import REPOSITORY

TABLE = Path(__file__).with_suffix(".toml")
LESSONS = ["course", "run", "--jobs", "1"]
REPLICA = ["course.replica"]  # each alone, from its first cell
TORCH = ("torch", "torchvision")
TESTS = ["-n", "auto", "-m", "not slow and not network and not box and not browser", "-q"]
# Warnings that old and new libraries give about each other do not count.
TESTS += ["-W", "default"]
# nbgrader cannot be had with the IPython of hosted notebooks, where nobody grades.
UNGRADED = ["--ignore=tests/course/grading", "--ignore=tests/test_main.py"]
# The short form: what meets the libraries most closely.
SHORT_TESTS = ["graphs", "passes", "pruning", "quantization", "models", "plots"]
SHORT_LESSONS = ["00", "02", "04", "06", "09"]


def main() -> int:
    """Check each named set, or all; the status is 1 if any fails."""
    sets = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(sets)}; default all")
    told = f"only the tests of {', '.join(SHORT_TESTS)} and lessons {', '.join(SHORT_LESSONS)}"
    parser.add_argument("--short", action="store_true", help=told)
    arguments = parser.parse_args()
    names = arguments.sets or list(sets)
    for name in names:
        if name not in sets:
            parser.error(f"{name!r} is no set; there are {', '.join(sets)}")
    outcomes = {name: check(name, sets[name], arguments.short) for name in names}
    for name, outcome in outcomes.items():
        print(f"{name:8} {outcome}")
    return int(any(outcome != "ok" for outcome in outcomes.values()))


def check(name: str, versions: dict[str, str], short: bool) -> str:
    """Install a set, run the fast tests and the lessons; "ok", or what failed."""
    folder = REPOSITORY / "build" / "versions" / name
    venv.create(folder, with_pip=True, clear=True)  # what is there may be half made, or old
    python = str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")
    for step, command in installation(python, name, versions).items():
        if not passed(name, step, command):
            return f"failed: {step}"  # without it, nothing can be tried
    failed = [
        step
        for step, command in checks(python, name, short).items()
        if not passed(name, step, command)
    ]
    return f"failed: {', '.join(failed)}" if failed else "ok"


def installation(python: str, name: str, versions: dict[str, str]) -> dict[str, list[str]]:
    """The commands that bring the libraries of a set."""
    pip = [python, "-m", "pip", "install", "--quiet"]
    pinned = [f"{library}=={version}" for library, version in versions.items()]
    index = os.environ.get("TORCH_INDEX")
    extra = "test" if name == "hosted" else "dev"
    torch = [pin for pin in pinned if pin.startswith(TORCH)] or list(TORCH)
    return {
        "torch": [*pip, *torch, *(["--index-url", index] if index else [])],
        "installation": [*pip, "--editable", f".[{extra}]", *pinned],
    }


def checks(python: str, name: str, short: bool) -> dict[str, list[str]]:
    """The commands that try what is installed."""
    places = [f"tests/{folder}" for folder in SHORT_TESTS] if short else []
    if name == "hosted":
        places += UNGRADED
    lessons = SHORT_LESSONS if short else []
    return {
        "tests": [python, "-m", "pytest", *TESTS, *places],
        "lessons": [python, "-m", *(REPLICA if name == "hosted" else LESSONS), *lessons],
    }


def passed(name: str, step: str, command: list[str]) -> bool:
    """Run one step of a set, and say how it went."""
    print(f"{name}: {step}", flush=True)
    # As `make test`: each of pytest's processes with one thread, or they wait for each other.
    threads = {"OMP_NUM_THREADS": "1"} if step == "tests" else {}
    good = subprocess.run(command, cwd=REPOSITORY, env=os.environ | threads).returncode == 0
    print(f"{name}: {step} {'passed' if good else 'FAILED'}", flush=True)
    return good


if __name__ == "__main__":
    sys.exit(main())
