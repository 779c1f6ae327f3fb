"""What keeps the course small: budgets of tokens, few files in a room, imports in one direction, no
unused names.
"""

import ast
import functools
import io
import json
import re
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES_IN_A_ROOM = 14
# Tokens, without comments and docstrings: a budget of lines only makes lines longer.
BUDGETS = {
    "helpers": 95_780,
    "helpers/graphs": 12_700,
    "helpers/models": 6_050,
    "helpers/passes": 10_910,
    "helpers/pruning": 14_300,
    "helpers/quantization": 21_140,
    "helpers/plots": 5_270,
    "helpers/training": 7_800,
    "helpers/checks": 5_630,
    "course": 101_210,
    "course/benchmarks": 17_430,
    "course/commands": 10_930,
    "course/grading": 41_920,
    "course/lessons": 6_640,
    "course/publish": 9_100,
    "course/reference": 11_990,
    "tests": 250_530,
    "notebooks": 101_340,
}
TOKENS_A_LINE = 11
COLUMNS = 100
# Per 1,000 lines of code: `a, b = c, d` and `x if y else z` save lines, and cost the reader time.
TUPLE_ASSIGNMENTS = 22
CONDITIONAL_EXPRESSIONS = 41
PACKAGES = ("helpers", "course", "tests", "notebooks")
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
# Python 3.12 cuts an f-string into pieces; it counts as one token all the same.
FSTRING_START = getattr(tokenize, "FSTRING_START", None)
FSTRING_END = getattr(tokenize, "FSTRING_END", None)
# What the parts of helpers do not import: quantization and pruning -> passes -> graphs.
NOT_IMPORTED_BY = {
    "graphs": ("passes", "pruning", "quantization"),
    "passes": ("pruning", "quantization"),
    "pruning": ("quantization",),
    "quantization": ("pruning",),
}
HEAVY = ("pandas", "matplotlib", "helpers.quantization", "helpers.pruning", "helpers.plots")


def sources(*folders):
    listed = subprocess.run(
        ["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [
        ROOT / line
        for line in listed.stdout.splitlines()
        if line.endswith(".py") and (ROOT / line).exists()
    ]


def docstrings(tree):
    """The first lines of all docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, documented)]
    return {
        node.body[0].lineno for node in nodes if ast.get_docstring(node, clean=False) is not None
    }


def code_tokens(text, tree):
    """The number of the line of each token that is neither comment nor docstring nor layout."""
    skipped = docstrings(tree)
    depth = 0  # in f-strings
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_part = depth > 0
        depth += (token.type == FSTRING_START) - (token.type == FSTRING_END)
        documents = token.type == tokenize.STRING and token.start[0] in skipped
        if token.type not in LAYOUT and not documents and not is_part:
            yield token.start[0]


@functools.cache
def density_of(path):
    """Tokens and lines of code, lines that are too long, tuple assignments and conditionals."""
    text = path.read_text()
    tree = ast.parse(text)
    lines = list(code_tokens(text, tree))
    counts = Counter(tokens=len(lines), lines=len(set(lines)))
    counts["wide"] = sum(len(line) > COLUMNS for line in text.splitlines())
    for node in ast.walk(tree):
        counts["conditionals"] += isinstance(node, ast.IfExp)
        counts["tuples"] += (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Tuple)
            and isinstance(node.value, ast.Tuple)
        )
    return counts


def density(room):
    counts = Counter()
    for path in sources(room):
        counts.update(density_of(path))
    return counts


@pytest.mark.parametrize("room", BUDGETS)
def test_a_room_has_no_more_tokens_than_its_budget(room):
    count = density(room)["tokens"]
    told = f"{room} has {count} tokens, {count - BUDGETS[room]} more than allowed"
    assert count <= BUDGETS[room], f"{told}: take a mechanism away"


def test_helpers_are_written_to_be_read():
    found = density("helpers")
    assert found["tokens"] <= TOKENS_A_LINE * found["lines"]
    assert 1000 * found["tuples"] <= TUPLE_ASSIGNMENTS * found["lines"]
    assert 1000 * found["conditionals"] <= CONDITIONAL_EXPRESSIONS * found["lines"]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_line_is_too_long(package):
    assert density(package)["wide"] == 0


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


def test_helpers_know_nothing_of_the_course_nor_rooms_of_later_ones_nor_the_course_of_tests():
    wrong = []
    for path in sources("helpers", "course"):
        package, room = path.relative_to(ROOT).parts[:2]
        forbidden = (
            "course",
            "notebooks",
            "exercises",
            "tests",
            *(f"helpers.{name}" for name in NOT_IMPORTED_BY.get(room, ())),
        )
        forbidden = forbidden if package == "helpers" else ("tests",)
        wrong += [
            f"{path.relative_to(ROOT).as_posix()} imports {name}"
            for name in imported(path)
            if any(name == start or name.startswith(f"{start}.") for start in forbidden)
        ]
    assert wrong == []


@pytest.mark.slow
@pytest.mark.ci
def test_passes_come_without_pandas_matplotlib_and_quantization():
    code = f"import sys, helpers.passes; print([name for name in {HEAVY} if name in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def public_names():
    """Every public function and class of a module, but those that a decorator registers."""
    for path in sources("helpers", "course"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                registered = node.decorator_list and path.parts[-2] in (
                    "passes",
                    "checks",
                    "pruning",
                )
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
    for path in ROOT.glob("notebooks/**/*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        used.update(re.findall(r"\w+", "\n".join(code)))
    return used | {*re.findall(r"\w+", (ROOT / "README.md").read_text(encoding="utf-8"))}


def test_no_public_name_is_there_for_its_tests_alone():
    found_by_name = {"add_arguments", "run", "main"}  # of a command, and of a benchmark
    found_by_name |= {"SafeMarkdown"}  # which the nbgrader_config.py of a class folder names
    found_by_name |= {"setup"}  # of site.py, which Sphinx calls
    assert set(public_names()) - used_names() - found_by_name == set()
