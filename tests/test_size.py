"""What keeps the course small: budgets of lines, few files in a room, imports in one direction, no unused names."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES_IN_A_ROOM = 14
BUDGETS = {
    "helpers": 10_360,
    "helpers/graphs": 1_460,
    "helpers/passes": 1_540,
    "helpers/pruning": 1_630,
    "helpers/quantization": 2_090,
    "helpers/plots": 545,
    "helpers/training": 580,
    "helpers/checks": 610,
    "course": 7_420,
    "course/benchmarks": 935,
    "course/commands": 985,
    "course/grading": 3_120,
    "course/lessons": 380,
    "course/publish": 735,
    "course/reference": 1_190,
    "tests": 14_850,
    "notebooks": 6_450,
}
ORDER = ("graphs", "passes", "pruning", "quantization")  # inside helpers, each imports those before it
HEAVY = ("pandas", "matplotlib", "helpers.quantization", "helpers.pruning", "helpers.plots")


def sources(*folders):
    listed = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / line for line in listed.stdout.splitlines() if line.endswith(".py") and (ROOT / line).exists()]


@pytest.mark.parametrize("room", BUDGETS)
def test_a_room_has_no_more_lines_than_its_budget(room):
    count = sum(len(path.read_text().splitlines()) for path in sources(room))
    excess = count - BUDGETS[room]
    assert excess <= 0, f"{room} has {count} lines, {excess} more than allowed: something else has to go"


def test_no_room_has_too_many_files():
    rooms = {}
    for path in sources("helpers"):
        if path.name != "__init__.py":
            rooms.setdefault(path.parent.relative_to(ROOT).as_posix(), []).append(path.name)
    counts = {room: len(files) for room, files in rooms.items() if len(files) > FILES_IN_A_ROOM}
    assert counts == {}


def imported(path):
    """The modules that a file imports, wherever in it; names that may be modules as well."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_helpers_know_nothing_of_the_course_its_rooms_nothing_of_later_ones_and_the_course_nothing_of_tests():
    wrong = []
    for path in sources("helpers", "course"):
        package, room = path.relative_to(ROOT).parts[:2]
        later = ORDER[ORDER.index(room) + 1 :] if room in ORDER else ()
        forbidden = ("course", "notebooks", "exercises", "tests", *(f"helpers.{name}" for name in later))
        forbidden = forbidden if package == "helpers" else ("tests",)
        wrong += [
            f"{path.relative_to(ROOT).as_posix()} imports {name}"
            for name in imported(path)
            if any(name == start or name.startswith(f"{start}.") for start in forbidden)
        ]
    assert wrong == []


def test_passes_come_without_pandas_matplotlib_and_quantization():
    code = f"import sys, helpers.passes; print([name for name in {HEAVY} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def public_names():
    """Every public function and class of a module, but those that a decorator registers."""
    for path in sources("helpers", "course"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                registered = node.decorator_list and path.parts[-2] in ("passes", "checks", "pruning")
                if not registered and not node.name.startswith("_"):
                    yield node.name


def used_names():
    """The names that code outside tests uses; to define, import or list one is not to use it."""
    used = set()
    for path in sources("helpers", "course", "notebooks"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Name):
                used.add(node.id)
            elif isinstance(node, ast.Attribute):
                used.add(node.attr)
    for path in (*ROOT.glob("notebooks/**/*.ipynb"), ROOT / "README.md"):
        used.update(re.findall(r"\w+", path.read_text()))
    return used


def test_no_public_name_is_there_for_its_tests_alone():
    found_by_name = {"add_arguments", "run", "main"}  # of a command, and of a benchmark
    found_by_name |= {"SafeMarkdown"}  # which the nbgrader_config.py of a class folder names
    assert set(public_names()) - used_names() - found_by_name == set()
