"""The exercises of all lessons, the answers that were right in the learner's own `mine.py`, and the
course's solutions.

Each answer is a block of `mine.py`: the function with the imports, helper functions and constants
of its cell. A block may use other exercises by name. It is kept only when it also works in a new
process, where nothing else of the notebook is defined. The course's solutions are the code that its
notebooks fold away below the exercises.
"""

import ast
import inspect
import json
import linecache
import re
import runpy
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from helpers.checks.specification import Item
from helpers.files import write_atomically

HEAD = '''"""Answers that were right, for later lessons. checks.check writes the blocks below; edit them as you like."""

import copy
import itertools
import math
import operator

import numpy as np
import torch
from torch import fx, nn
from torch.nn import functional as F
'''
SECONDS_ALONE = 120  # for a process, of which most go into importing torch
GIVEN: dict[
    str, Any
] = {}  # what every answer may use without importing it, as in the first cells of the lessons
exec(HEAD, GIVEN)
TITLE = "# ---- {} ----"
# What runs in a new process: in this one an answer would find what a cell patched, set or put among
# the builtins.
ALONE = """
import pathlib, sys
from helpers.checks import Lessons, first_failure
sys.tracebacklimit = 0  # an error in a default value or a decorator is told by its name
lessons, name = Lessons(pathlib.Path({!a})), {!a}
sys.exit(first_failure(lessons.items[name], lessons.define(name, {!a})))
"""


class NotRightYet(ValueError):
    """An exercise's answer is wrong; says on which input, how far off, and what to look at."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the message alone, since the way through this file teaches nobody
        anything.
        """
        return [f"NotRightYet: {self}"]


class Lessons:
    """The exercises in one folder, of which the notebooks and `mine.py` are one folder up."""

    def __init__(self, folder: Path):
        self.folder, self.notebooks, self.mine = folder, folder.parent, folder.parent / "mine.py"
        self.mine_folder = self.mine.with_suffix("")  # networks that the learner has trained
        self.by_lesson = {file.stem: load(file) for file in sorted(folder.glob("lesson_*.py"))}
        self.items = {item.function: item for items in self.by_lesson.values() for item in items}
        self.misses: Counter[str] = Counter()  # how often each was answered wrongly

    def find(self, name: str) -> Item:
        """The exercise that a function of this name answers."""
        if name in self.items:
            return self.items[name]
        said = (
            "use def, for a lambda has no name"
            if name == "<lambda>"
            else f"there is no exercise called {name!r}"
        )
        raise NotRightYet(f"{said}; there are {', '.join(sorted(self.items))}")

    def blocks(self) -> dict[str, str]:
        """The kept answers: name of the exercise -> code."""
        text = self.mine.read_text("utf-8") if self.mine.exists() else ""
        parts = re.split("^" + TITLE.format(r"(\w+)") + "$", text, flags=re.M)
        return {
            name: code.strip() + "\n" for name, code in zip(parts[1::2], parts[2::2], strict=True)
        }

    def hint(self, item: Item) -> str:
        """What is said of one more wrong answer, beside what differs: nothing, a nudge, the way,
        then the solution.
        """
        self.misses[item.function] += 1
        steps = (
            "Read this first; the next try gets a hint.",
            f"Hint: {item.nudge or item.hint}",
            f"Hint: {item.hint}",
        )
        steps += (f"{steps[-1]}\nThe solution:\n{self.solution(item.function)}",)
        return steps[min(self.misses[item.function], len(steps)) - 1]

    def keep(self, function: Callable) -> str:
        """Write an answer into the learner's file, unless it leans on what only the notebook knows;
        says which.
        """
        try:
            blocks = self.blocks() | {function.__name__: block_of(function)}
            if (failure := self.failure_alone(function.__name__, blocks)) is None:
                head = (
                    (self.mine.read_text("utf-8") if self.mine.exists() else HEAD)
                    .partition(TITLE[:7])[0]
                    .rstrip()
                )
                kept = (f"{TITLE.format(name)}\n\n{code}" for name, code in blocks.items())
                write_atomically(self.mine, "\n\n".join((head, *kept)))
        except (
            OSError,
            ValueError,
            subprocess.TimeoutExpired,
        ) as problem:  # a locked folder, no source, no UTF-8
            failure = problem
        return (
            f", but not kept for later lessons: {failure}"
            if failure
            else " (kept in mine.py for later lessons)"
        )

    def failure_alone(self, name: str, blocks: dict[str, str]) -> str | None:
        """What is wrong with an answer in a new process, where no cell of the notebook has run."""
        settings = {
            "cwd": Path(__file__).parents[2],
            "timeout": SECONDS_ALONE,
            "capture_output": True,
            "text": True,
        }
        program = ALONE.format(str(self.folder), name, blocks)
        done = subprocess.run([sys.executable, "-W", "ignore"], input=program, **settings)
        why = done.stderr.strip() or f"it ended with {done.returncode}"
        return (
            f"alone it fails ({why}). Define what it uses in the same cell"
            if done.returncode
            else None
        )

    def define(self, name: str, blocks: dict[str, str]) -> Any:
        """Run an answer's code, the course's where `blocks` have none, after that of the exercises
        which it uses.
        """
        code = blocks.get(name) or self.solution(name)
        try:
            used = {
                node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)
            } & self.items.keys()
        except SyntaxError as problem:
            raise NotRightYet(
                f"{name} in {self.mine}: {problem}; correct it there, or delete its block"
            ) from None
        names = GIVEN | {other: self.define(other, blocks) for other in sorted(used - {name})}
        exec(compile(code, f"<{name}>", "exec"), names)
        linecache.cache[f"<{name}>"] = (
            len(code),
            None,
            code.splitlines(keepends=True),
            f"<{name}>",
        )
        return names[name]

    def solution(self, name: str) -> str:
        """The code that a lesson folds away below the exercise."""
        for code in folded_code(self.notebooks):
            if re.search(rf"^(def|class) {name}\b", code, re.M):
                return code
        raise NotRightYet(f"no notebook in {self.notebooks} shows a solution of {name}")


@cache
def load(file: Path) -> tuple[Item, ...]:
    """The exercises that a file defines; it may import what lies beside it."""
    sys.path += {str(file.parent)}.difference(sys.path)
    return runpy.run_path(str(file))["ITEMS"]


@cache
def folded_code(folder: Path) -> list[str]:
    """The code in the texts of the notebooks."""
    notebooks = (
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("[0-9]*.ipynb"))
    )
    cells = (
        cell
        for notebook in notebooks
        for cell in notebook["cells"]
        if cell["cell_type"] == "markdown"
    )
    return [
        code
        for cell in cells
        for code in re.findall(r"```python\n(.*?)```", "".join(cell["source"]), re.S)
    ]


def block_of(function: Callable) -> str:
    """The function with the imports, functions, classes and constants of its cell."""
    own = code = inspect.getsource(function)
    cell = "".join(
        linecache.getlines(inspect.unwrap(function).__code__.co_filename)
    )  # below its decorators
    with suppress(SyntaxError):  # of a cell with %magic: the function alone
        known, kept = {*GIVEN, *GIVEN["__builtins__"]}, []
        for part in ast.parse(cell).body:
            if new := defined(part, known):
                known |= new
                kept += [
                    "@" + ast.get_source_segment(cell, one)
                    for one in getattr(part, "decorator_list", ())
                ]
                kept += [ast.get_source_segment(cell, part)]
        code = "\n".join(kept)
    return (code if f"def {function.__name__}(" in code else own).strip() + "\n"


def defined(part: ast.stmt, known: set[str]) -> set[str]:
    """The names that a statement defines; none where their value needs more of the notebook than
    what is `known`.
    """
    if isinstance(part, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef):
        return {getattr(one, "asname", None) or one.name for one in getattr(part, "names", [part])}
    if not isinstance(part, ast.Assign | ast.AnnAssign):
        return set()
    used = {node.id for node in ast.walk(part.value or part) if isinstance(node, ast.Name)}
    names = {node.id for node in ast.walk(part) if isinstance(node, ast.Name)}
    return names if isinstance(part.value, ast.Lambda) or used <= known else set()
