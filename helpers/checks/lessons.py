"""The exercises of all lessons, the answers that were right in the learner's own `mine.py`, and the course's solutions.

Each answer is a block of `mine.py`: the function with the imports, helper functions and plain constants of its cell.
A block may use other exercises by name. It is kept only when it also works where nothing else of the notebook is
defined. The course's solutions are the code that its notebooks fold away below the exercises.
"""

import ast
import importlib.util
import inspect
import json
import linecache
import re
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from helpers.checks.specification import Item
from helpers.checks.trying import first_failure
from helpers.files import write_atomically

HEAD = '''"""Answers that were right, for later lessons to use. checks.check writes them; they are yours to edit."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
'''
GIVEN: dict[str, Any] = {}  # what every answer may use without importing it, as in the first cells of the lessons
exec(HEAD, GIVEN)
TITLE = "# ---- {} ----"


class NotRightYet(ValueError):
    """An exercise's answer is wrong; says on which input, how far off, and what to look at."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the message alone, since the way through this file teaches nobody anything."""
        return [f"NotRightYet: {self}"]


class Lessons:
    """The exercises in one folder, of which the notebooks and `mine.py` are one folder up."""

    def __init__(self, folder: Path):
        self.notebooks, self.mine = folder.parent, folder.parent / "mine.py"
        self.by_lesson = {file.stem: load(file) for file in sorted(folder.glob("lesson_*.py"))}
        self.items = {item.function: item for items in self.by_lesson.values() for item in items}
        self.misses: Counter[str] = Counter()  # how often each was answered wrongly

    def find(self, name: str) -> Item:
        """The exercise that a function of this name answers."""
        if name in self.items:
            return self.items[name]
        said = "use def, for a lambda has no name" if name == "<lambda>" else f"there is no exercise called {name!r}"
        raise NotRightYet(f"{said}; there are {', '.join(sorted(self.items))}")

    def blocks(self) -> dict[str, str]:
        """The kept answers: name of the exercise -> code."""
        text = self.mine.read_text(encoding="utf-8") if self.mine.exists() else ""
        parts = re.split("^" + TITLE.format(r"(\w+)") + "$", text, flags=re.M)
        return {name: code.strip() + "\n" for name, code in zip(parts[1::2], parts[2::2], strict=True)}

    def hint(self, item: Item) -> str:
        """What is said of one more wrong answer, beside what differs: nothing, a nudge, the way, then the solution."""
        self.misses[item.function] += 1
        steps = ("Read this first; the next try gets a hint.", f"Hint: {item.nudge or item.hint}", f"Hint: {item.hint}")
        steps += (f"{steps[-1]}\nThe solution:\n{self.solution(item.function)}",)
        return steps[min(self.misses[item.function], len(steps)) - 1]

    def keep(self, function: Callable) -> str:
        """Write an answer into the learner's file, unless it leans on what only the notebook knows; says which."""
        name, failure = function.__name__, None
        try:
            blocks = self.blocks() | {name: block_of(function)}
            failure = first_failure(self.items[name], self.define(name, blocks))
            if not failure:
                write_atomically(self.mine, HEAD + "".join(f"\n\n{TITLE.format(n)}\n\n{c}" for n, c in blocks.items()))
        except OSError as problem:  # its source is not in a cell, or the folder cannot be written to
            return f", but not kept for later lessons: {problem}"
        except Exception as problem:  # in a default value, or a decorator
            failure = f"{type(problem).__name__}: {problem}"
        if failure:
            return f", but not kept for later lessons: alone it fails ({failure}). Define what it uses in the same cell"
        return " (kept in mine.py for later lessons)"

    def define(self, name: str, blocks: dict[str, str] | None = None) -> Any:
        """Run an answer's code, the course's where `blocks` have none, after that of the exercises which it uses."""
        blocks = blocks or {}
        code = blocks.get(name) or self.solution(name)
        used = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)} & self.items.keys()
        names = GIVEN | {other: self.define(other, blocks) for other in sorted(used - {name})}
        exec(compile(code, f"<{name}>", "exec"), names)
        linecache.cache[f"<{name}>"] = (len(code), None, code.splitlines(keepends=True), f"<{name}>")
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
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    spec = importlib.util.spec_from_file_location(f"exercises_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ITEMS


@cache
def folded_code(folder: Path) -> list[str]:
    """The code in the texts of the notebooks."""
    notebooks = (json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("[0-9]*.ipynb")))
    cells = (cell for notebook in notebooks for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    return [code for cell in cells for code in re.findall(r"```python\n(.*?)```", "".join(cell["source"]), re.S)]


def block_of(function: Callable) -> str:
    """The function with the imports, functions, classes and plain constants of its cell."""
    own = code = inspect.getsource(function)
    cell = "".join(linecache.getlines(inspect.unwrap(function).__code__.co_filename))  # below its decorators
    with suppress(SyntaxError):  # of a cell with %magic: the function alone
        code = "\n".join(ast.get_source_segment(cell, part) for part in ast.parse(cell).body if goes_along(part))
    return (code if f"def {function.__name__}(" in code else own).strip() + "\n"


def goes_along(part: ast.stmt) -> bool:
    """Whether a statement imports or defines something, or names a number, a text, or a tuple or list of them."""
    if isinstance(part, ast.Assign):
        with suppress(ValueError):
            ast.literal_eval(part.value)
            return True
    return isinstance(part, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef)
