"""Answers that were right, in the learner's own file `mine.py`; and the solutions of the course, from its notebooks.

Each answer is a block of `mine.py`: the function with the imports, helper functions and plain constants of its cell.
A block may use other exercises by name. It is kept only when it also works in a fresh process, in which nothing else
of the notebook is defined.
"""

import ast
import inspect
import json
import linecache
import math
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from helpers.files import write_atomically

# What every answer may use without importing it, as in the first cells of the lessons.
GIVEN = {"math": math, "torch": torch, "nn": nn, "F": F, "np": np, "numpy": np}
HEAD = '''"""Answers that were right, for later lessons to use. checks.check writes them; they are yours to edit."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
'''
TITLE = "# ---- {} ----"
SECONDS = 120


class NotKept(ValueError):
    """A right answer cannot be used in later lessons; says why and what to do."""


@dataclass(frozen=True)
class Answers:
    """The answers in one folder of notebooks.

    Args:
        folder: where the notebooks and `mine.py` are.
        exercises: the names of all exercises, which an answer may use.
    """

    folder: Path
    exercises: frozenset[str]

    @property
    def file(self) -> Path:
        """The learner's file."""
        return self.folder / "mine.py"

    def blocks(self) -> dict[str, str]:
        """The kept answers: name of the exercise -> code."""
        text = self.file.read_text(encoding="utf-8") if self.file.exists() else ""
        parts = re.split("^" + TITLE.format(r"(\w+)") + "$", text, flags=re.M)
        return {name: code.strip() + "\n" for name, code in zip(parts[1::2], parts[2::2], strict=True)}

    def keep(self, function: Callable, exercises: Path) -> None:
        """Write an answer to one of the `exercises` into the learner's file, after a fresh process has found it right.

        Raises:
            NotKept: it leans on something that only the notebook knows.
        """
        before = self.file.read_text(encoding="utf-8") if self.file.exists() else None
        blocks = self.blocks() | {function.__name__: block_of(function)}
        text = HEAD + "".join(f"\n\n{TITLE.format(name)}\n\n{code}" for name, code in blocks.items())
        try:
            write_atomically(self.file, text)
            try_in_fresh_process(exercises, function.__name__)
        except NotKept:
            write_atomically(self.file, before) if before is not None else self.file.unlink()
            raise
        except OSError as problem:
            raise NotKept(f"{self.file} cannot be written ({problem})") from problem

    def own(self, name: str) -> Callable | None:
        """The learner's answer, or None."""
        blocks = self.blocks()
        return self.define(name, blocks) if name in blocks else None

    def reference(self, name: str) -> Callable:
        """The course's answer."""
        return self.define(name, {})

    def define(self, name: str, blocks: dict[str, str]) -> Callable:
        """Run an answer's code, after that of the exercises which it uses."""
        code = blocks.get(name) or self.solution(name)
        used = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)} & self.exercises - {name}
        names = GIVEN | {other: self.define(other, blocks) for other in sorted(used)}
        exec(compile(code, f"<{name}>", "exec"), names)
        linecache.cache[f"<{name}>"] = (len(code), None, code.splitlines(keepends=True), f"<{name}>")
        return names[name]

    def solution(self, name: str) -> str:
        """The code that a lesson folds away below the exercise."""
        for path in sorted(self.folder.glob("[0-9]*.ipynb")):
            for code in folded_code(path, path.stat().st_mtime_ns):
                if re.search(rf"^(def|class) {name}\b", code, re.M):
                    return code
        raise NotKept(f"no notebook in {self.folder} shows a solution of {name}")


@cache
def folded_code(notebook: Path, changed: int) -> tuple[str, ...]:
    """The code in a notebook's text; `changed` is the time of its last change, so that it is read again after one."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    texts = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return tuple(code for text in texts for code in re.findall(r"```python\n(.*?)```", text, re.S))


def block_of(function: Callable) -> str:
    """The function with the imports, functions, classes and plain constants of its cell."""
    cell = "".join(linecache.getlines(inspect.unwrap(function).__code__.co_filename))  # below its decorators
    try:
        own = inspect.getsource(function)
        wanted = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
        parts = [part for part in ast.parse(cell).body if isinstance(part, wanted) or is_constant(part)]
        code = "\n".join(ast.get_source_segment(cell, part) for part in parts)
    except (OSError, TypeError, SyntaxError):  # no cell, or one with %magic: the function alone
        try:
            own = code = inspect.getsource(function)
        except (OSError, TypeError) as problem:
            raise NotKept("its source is not in a cell") from problem
    return (code if f"def {function.__name__}(" in code else own).strip() + "\n"


def is_constant(part: ast.stmt) -> bool:
    """Whether a statement gives a name to a number, a text, or a tuple or list of them."""
    if not isinstance(part, ast.Assign):
        return False
    try:
        ast.literal_eval(part.value)
    except ValueError:
        return False
    return True


def try_in_fresh_process(exercises: Path, name: str) -> None:
    """Check a kept answer where nothing of the notebook is defined."""
    code = "import sys; from helpers.checks import exercises; exercises.main(*sys.argv[1:])"
    command = [sys.executable, "-c", code, str(exercises), name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=Path(__file__).parents[2])
    except subprocess.TimeoutExpired as late:
        raise NotKept(f"in a fresh process it took longer than {SECONDS} seconds") from late
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise NotKept(
            f"in a fresh process it fails ({words[-1] if words else 'without a word'}). "
            "Define what it uses in the same cell, then check it again"
        )
