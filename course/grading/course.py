"""Find and load the assignments: for each a folder with its notebook, specification and driver."""

import importlib.util
import sys
from dataclasses import dataclass
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
    with _loading:
        # Every specification says `from driver import ...` and means the one beside it.
        before = sys.modules.get("driver")
        sys.modules["driver"] = _import(folder / name / "driver.py", f"{name}_driver")
        try:
            assignment = _import(
                folder / name / "specification.py", f"{name}_specification"
            ).ASSIGNMENT
        finally:
            sys.modules.pop("driver")
            if before is not None:
                sys.modules["driver"] = before
    return Exercise(assignment, folder / name)


def _import(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
