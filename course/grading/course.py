"""Find and load the assignments: for each a folder with its notebook, specification and driver."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from types import ModuleType

from helpers.checks.specification import Assignment

FOLDER = Path(__file__).resolve().parents[2] / "notebooks" / "assignments"
_loading = Lock()


@dataclass(frozen=True)
class Exercise:
    """An assignment with the files that it is made of."""

    assignment: Assignment
    folder: Path

    @property
    def notebook(self) -> Path:
        """The source notebook, with solutions."""
        return self.folder / f"{self.folder.name}.ipynb"

    @property
    def driver(self) -> Path:
        """The file that the box and the student get, too."""
        return self.folder / "driver.py"

    def load_driver(self) -> ModuleType:
        """The driver, as a module of its own."""
        return _import(self.driver, f"{self.folder.name}_driver")


def names(folder: Path = FOLDER) -> list[str]:
    """Names of all assignments, in order."""
    return sorted(path.parent.name for path in folder.glob("*/specification.py"))


def load(name: str, folder: Path = FOLDER) -> Exercise:
    """Load one assignment."""
    if name not in names(folder):
        raise ValueError(
            f"there is no assignment {name!r} in {folder}; there are {', '.join(names(folder))}"
        )
    with _loading, _beside(folder / name):
        specification = _import(folder / name / "specification.py", f"{name}_specification")
    if (other := specification.ASSIGNMENT.name) != name:
        raise ValueError(
            f"{folder / name / 'specification.py'} calls its assignment {other!r}: write {name!r}"
            " there, or rename the folder"
        )
    return Exercise(specification.ASSIGNMENT, folder / name)


@cache
def answer_cells(name: str) -> set[str]:
    """The marks of an assignment's cells for answers, in code and in words."""
    notebook = json.loads((FOLDER / name / f"{name}.ipynb").read_bytes())
    marks = [cell["metadata"].get("nbgrader", {}) for cell in notebook["cells"]]
    return {mark["grade_id"] for mark in marks if mark.get("solution")}


def listed_files(*words: str) -> list[str]:
    """The course's files that git tracks, or those that its words ask for, by their paths in it."""
    root = FOLDER.parents[1]
    listed = subprocess.run(
        ["git", "-C", root, "ls-files", "-z", *words],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if listed.returncode:
        raise ValueError(
            f"{root} is no git repository, whose list of files is needed here: clone the course"
        )
    return [name for name in listed.stdout.split("\0") if (root / name).is_file()]


@contextmanager
def _beside(folder: Path) -> Iterator[None]:
    """Let a specification import what lies beside it, under names that all assignments have."""
    names = {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}
    others = {name: sys.modules.pop(name) for name in names & sys.modules.keys()}
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in [*sys.modules]:
            if name.partition(".")[0] in names:
                del sys.modules[name]
        sys.modules.update(others)


def _import(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
