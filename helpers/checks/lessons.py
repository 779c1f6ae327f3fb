"""The exercises of all lessons, the learner's right answers, which are kept in `mine.py`, and the
course's solutions.

Each answer is a block of `mine.py`: the function with the imports, helper functions and constants
of its cell. A block may use other exercises by name. It is kept only when it also works in a new
process, where nothing else of the notebook is defined. The course's solutions are the code that its
notebooks fold away below the exercises.
"""

import ast
import inspect
import io
import json
import linecache
import os
import re
import runpy
import symtable
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from functools import cache
from pathlib import Path
from typing import Any

from helpers.checks.alone import Spare
from helpers.checks.specification import Item, Mistake
from helpers.checks.trying import Failure, same_mistake
from helpers.files import write_atomically

HEAD = '''"""Answers that were right, for later lessons.

checks.check writes the blocks below; edit them as you like.
"""

import copy
import itertools
import math
import operator

import numpy as np
import torch
from torch import fx, nn
from torch.nn import functional as F
'''
# What every answer may use without importing it, as in the first cells of the lessons.
GIVEN: dict[str, Any] = {}
exec(HEAD, GIVEN)
TITLE = "# ---- {} ----"
BLOCK = re.compile("^" + TITLE.format(r"(\w+)") + "$", re.MULTILINE)


class NotRightYet(ValueError):
    """An exercise's answer is wrong; says on which input, how far off, and what to look at."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the message alone, because the path through this file teaches
        nothing.
        """
        return [f"NotRightYet: {self}"]


class Lessons:
    """The exercises in one folder; the notebooks and `mine.py` are one folder up."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.notebooks = folder.parent
        self.mine = Path(os.environ.get("COURSE_MINE") or self.notebooks / "mine.py")
        self.mine_folder = self.mine.with_suffix("")  # networks that the learner has trained
        self.spare = Spare(folder)
        self.by_lesson = {file.stem: load(file) for file in sorted(folder.glob("lesson_*.py"))}
        self.items = {item.function: item for items in self.by_lesson.values() for item in items}
        self.misses: Counter[str] = Counter()  # how often each was answered wrongly

    def find(self, name: str) -> Item:
        """The exercise that a function of this name answers."""
        if name in self.items:
            return self.items[name]
        reason = f"there is no exercise called {name!r}"
        if name == "<lambda>":
            reason = "use def, for a lambda has no name"
        raise NotRightYet(f"{reason}; there are {', '.join(sorted(self.items))}")

    def blocks(self) -> dict[str, str]:
        """The kept answers: name of the exercise -> code."""
        text = self.mine.read_text("utf-8") if self.mine.exists() else ""
        parts = BLOCK.split(text)
        return {
            name: code.strip() + "\n" for name, code in zip(parts[1::2], parts[2::2], strict=True)
        }

    def hint(self, item: Item, function: Callable, failure: Failure) -> str:
        """Count one more wrong answer, and say what helps: first only to read what is wrong, then a
        nudge, then the way, then the solution. A known mistake has its own nudge.
        """
        self.misses[item.function] += 1
        tries = self.misses[item.function]
        if tries == 1:
            return "Read this first; the next try gets a hint."
        if tries == 2:
            known = failure.case and self.hint_for_mistake(item, function)
            return f"Hint: {failure.hint or known or item.nudge or item.hint}"
        if tries == 3:
            return f"Hint: {failure.hint or item.hint}"
        return f"Hint: {item.hint}\nThe solution:\n{self.solution(item.function)}"

    def hint_for_mistake(self, item: Item, function: Callable) -> str | None:
        """The hint of the first known mistake that answers as the learner did."""
        with redirect_stdout(io.StringIO()):  # what an answer prints was printed by the check
            for mistake in item.mistakes:
                code = changed_solution(self.solution(item.function), item.function, mistake)
                mistaken = self.define(item.function, {item.function: code})
                if same_mistake(item, function, mistaken):
                    return mistake.hint
        return None

    def keep(self, function: Callable) -> str:
        """Write an answer into the learner's file, unless it needs other cells of the notebook;
        say how that went.
        """
        name = function.__name__
        try:
            block = {name: block_of(function)}
            failure = self.spare.try_alone(name, self.blocks() | block)
            if failure is None:
                # Read again: another notebook may have kept an answer meanwhile.
                write_atomically(self.mine, self.text_of(self.blocks() | block))
                return f" (kept in {self.mine.name} for later lessons)"
        except (OSError, ValueError) as problem:  # a locked folder, no source, no UTF-8
            failure = problem
        return f", but not kept for later lessons: {failure}"

    def text_of(self, blocks: dict[str, str]) -> str:
        """The learner's file with these answers; what stands above the first stays."""
        before = self.mine.read_text("utf-8") if self.mine.exists() else HEAD
        head = BLOCK.split(before)[0].rstrip()
        kept = [f"{TITLE.format(name)}\n\n{code}" for name, code in blocks.items()]
        return "\n\n".join([head, *kept])

    def define(self, name: str, blocks: dict[str, str]) -> Any:
        """The function that an answer defines. Its code is in `blocks`, or the course's
        where there is none; the exercises that it uses are defined first.
        """
        code = blocks.get(name) or self.solution(name)
        try:
            tree = ast.parse(code)
        except SyntaxError as problem:
            raise NotRightYet(
                f"{name} in {self.mine}: {problem}; correct it there, or delete its block"
            ) from None
        own = {part.name for part in tree.body if isinstance(part, ast.FunctionDef)} | {name}
        used = names_in(tree) & self.items.keys() - own
        names = GIVEN | {other: self.define(other, blocks) for other in sorted(used)}
        file = f"<{name}>"
        exec(compile(code, file, "exec"), names)
        linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
        return names[name]

    def solution(self, name: str) -> str:
        """The code that a lesson folds away below the exercise."""
        for code in folded_code(self.notebooks):
            if re.search(rf"^def {name}\b", code, re.M):
                return code
        raise NotRightYet(f"no notebook in {self.notebooks} shows a solution of {name}")


@cache
def load(file: Path) -> tuple[Item, ...]:
    """The exercises that a file defines; it may import what lies beside it."""
    folder = str(file.parent)
    if folder not in sys.path:
        sys.path.append(folder)
    return runpy.run_path(str(file))["ITEMS"]


@cache
def folded_code(folder: Path) -> list[str]:
    """The code in the texts of the notebooks."""
    code = []
    # Sorted backwards, for beside a lesson that its learner changed may lie a newer version
    # (NAME.new.ipynb, NAME.new2.ipynb), which fits the exercises.
    for path in sorted(folder.glob("[0-9]*.ipynb"), reverse=True):
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            if cell["cell_type"] == "markdown":
                code += re.findall(r"```python\n(.*?)```", "".join(cell["source"]), re.S)
    return code


def changed_solution(solution: str, function: str, mistake: Mistake) -> str:
    """The solution with a mistake in it, or with a mistake as its whole body."""
    if mistake.right:
        if solution.count(mistake.right) != 1:
            raise ValueError(f"the solution of {function} must have {mistake.right!r} once")
        return solution.replace(mistake.right, mistake.wrong)
    signature = re.search(rf"^def {function}\(.*?\).*?:$", solution, re.M | re.S)[0]
    return f"{signature}\n{textwrap.indent(mistake.wrong, '    ')}"


def block_of(function: Callable) -> str:
    """The function with the imports, functions, classes and constants of its cell."""
    file = inspect.unwrap(function).__code__.co_filename  # below its decorators
    code = ""
    with suppress(SyntaxError):  # of a cell with %magic: the function alone
        code = "\n".join(definitions_in("".join(linecache.getlines(file))))
    if f"def {function.__name__}(" not in code:
        code = inspect.getsource(function)
    return code.strip() + "\n"


def definitions_in(cell: str) -> Iterator[str]:
    """The parts of a cell that define something, and need nothing from other cells for it."""
    known = {*GIVEN, *GIVEN["__builtins__"]}
    for part in ast.parse(cell).body:
        new = defined_names(part, known)
        if new:
            known |= new
            for decorator in getattr(part, "decorator_list", ()):
                yield "@" + ast.get_source_segment(cell, decorator)
            yield ast.get_source_segment(cell, part)


def defined_names(part: ast.stmt, known: set[str]) -> set[str]:
    """The names that a statement defines; none if it computes a value from names that are not
    `known`.
    """
    if isinstance(part, ast.FunctionDef | ast.ClassDef):
        return {part.name}
    if isinstance(part, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name for alias in part.names}
    if not isinstance(part, ast.Assign | ast.AnnAssign) or part.value is None:
        return set()
    targets = part.targets if isinstance(part, ast.Assign) else [part.target, part.annotation]
    read = {name.id for target in targets for name in _names(target) if _is_read(name)}
    if not isinstance(part.value, ast.Lambda):  # which reads names when it is called
        read |= _read_in(part.value)
    return set().union(*map(names_in, targets)) if read <= known else set()


def names_in(part: ast.AST) -> set[str]:
    """Every name that a piece of code uses."""
    return {name.id for name in _names(part)}


def _names(part: ast.AST) -> list[ast.Name]:
    return [node for node in ast.walk(part) if isinstance(node, ast.Name)]


def _read_in(value: ast.expr) -> set[str]:
    """The names that an expression reads, but for those of its own comprehensions and lambdas."""
    tables = [symtable.symtable(ast.unparse(value), "", "eval")]
    for table in tables:  # which grows meanwhile
        tables += table.get_children()
    symbols = [symbol for table in tables for symbol in table.get_symbols()]
    own = {symbol.get_name() for symbol in tables[0].get_symbols() if symbol.is_assigned()}
    return {s.get_name() for s in symbols if s.is_global() and s.is_referenced()} - own


def _is_read(name: ast.Name) -> bool:
    """Whether it must be there before, as `results` in `results["mine"] = 1`."""
    return isinstance(name.ctx, ast.Load)
