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

REPOSITORY = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_suffix(".toml")
LESSONS = ["course", "run", "--jobs", "1"]
REPLICA = ["course.replica"]  # each alone, from its first cell
TORCH = ("torch", "torchvision")
TESTS = ["-m", "not slow and not network and not box and not browser", "-q"]
# What libraries of different years say of each other is no fault of the course.
TESTS += ["-W", "default"]


def main() -> int:
    """Check each named set, or all; the status is 1 if any fails."""
    sets = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(sets)}; default all")
    names = parser.parse_args().sets or list(sets)
    for name in names:
        if name not in sets:
            parser.error(f"{name!r} is no set; there are {', '.join(sets)}")
    outcomes = {name: check(name, sets[name]) for name in names}
    for name, outcome in outcomes.items():
        print(f"{name:8} {outcome}")
    return int(any(outcome != "ok" for outcome in outcomes.values()))


def check(name: str, versions: dict[str, str]) -> str:
    """Install a set, run the fast tests and all lessons; "ok", or what failed."""
    folder = REPOSITORY / "build" / "versions" / name
    if not folder.exists():
        venv.create(folder, with_pip=True)
    python = str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")
    pip = [python, "-m", "pip", "install", "--quiet"]
    pinned = [f"{library}=={version}" for library, version in versions.items()]
    index = os.environ.get("TORCH_INDEX")
    torch = [pin for pin in pinned if pin.startswith(TORCH)] or list(TORCH)
    steps = {
        "torch": [*pip, *torch, *(["--index-url", index] if index else [])],
        "installation": [*pip, "--editable", ".[dev]", *pinned],
        "tests": [python, "-m", "pytest", *TESTS],
        "lessons": [python, "-m", *(REPLICA if name == "hosted" else LESSONS)],
    }
    for step, command in steps.items():
        print(f"{name}: {step}", flush=True)
        if subprocess.run(command, cwd=REPOSITORY).returncode:
            return f"failed: {step}"
    return "ok"


if __name__ == "__main__":
    sys.exit(main())
