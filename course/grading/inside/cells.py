"""Execute a student's cells as a notebook does."""

import ast
import json
import linecache
import os
import subprocess
import sys
import time
import types
from codeop import Compile
from pathlib import Path

import IPython
from inside.timing import alarm
from IPython.core.inputtransformer2 import TransformerManager

CELLS_SECONDS = 60  # of work for all cells; after that each gets a second
FILE_COMMANDS = ("mkdir", "cp", "mv", "rm", "touch", "unzip")

_compile = Compile()  # as in IPython: what a cell imports from __future__ holds for those after it
_compile.flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


class Shell:
    """Stands for IPython: executes what measures or captures code, and what it runs or writes.

    All else, such as !pip, does nothing.
    """

    def __init__(self, namespace):
        self.namespace = namespace

    def __getattr__(self, name):
        return self

    def __call__(self, *words, **more):
        """Take the place of any method of IPython's shell."""

    def __bool__(self):  # libraries that ask whether they run in IPython hear no
        return False

    def run_line_magic(self, name, line, *more):
        """Execute what %time measures and the file that %run names: they may define names."""
        if name == "time":
            run_cell(line, "<after %time>", self.namespace)
        elif name == "run":
            self._run_file(next(word for word in line.split() if not word.startswith("-")))
        elif name == "cd":
            os.chdir(Path(line.strip().strip("'\"")).expanduser())
        else:
            self.system(f"{name} {line}")

    def _run_file(self, name):
        """Execute a Python file, or all cells of a notebook."""
        path = Path(name.strip("'\""))
        if path.suffix != ".ipynb":
            sources = [path.with_suffix(".py").read_text(encoding="utf-8")]
        else:
            cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
            sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        for source in sources:
            run_cell(source, f"<%run {name}>", self.namespace)

    def system(self, line):
        """Do what a shell does with files."""
        if line.split()[:1] and line.split()[0] in FILE_COMMANDS:
            subprocess.run(line, shell=True, timeout=10, check=False)

    def run_cell_magic(self, name, line, body):
        """Execute what stands below a magic that measures or captures; skip other languages."""
        if name in ("time", "timeit", "capture", "prun"):
            run_cell(body, f"<below %%{name}>", self.namespace)
        elif name in ("writefile", "file"):
            words = line.split()
            mode = "a" if "-a" in words else "w"
            with open(words[-1], mode, encoding="utf-8") as file:
                file.write(body)


def run_cells(cells, seconds):
    """Execute the cells as a notebook does, also after one fails.

    Returns the namespace, and what went wrong where.
    """
    # A module of its own: a student's `from time import time` must not reach the names of this
    # file.
    sys.modules["__main__"] = module = types.ModuleType("__main__")
    namespace, problems = vars(module), []
    shell = Shell(namespace)
    namespace |= {"get_ipython": lambda: shell, "display": print}
    IPython.get_ipython = namespace["get_ipython"]
    waiting, number = [*cells], 0
    while waiting:
        cell, number = waiting.pop(0), number + 1
        try:
            # Long computations of the student's own must not use up what the answers need.
            alarm(max(1, min(seconds, CELLS_SECONDS - time.process_time())))
            run_cell(cell["source"], f"<{cell['name']}, cell {number}>", namespace)
        except BaseException as problem:
            if isinstance(problem, NameError) and number <= len(cells):
                waiting.append(cell)  # a notebook remembers what a cell further down defines
            else:
                problems.append([cell["name"], f"{type(problem).__name__}: {problem}"[:300]])
        finally:
            alarm(0)
    return namespace, problems


def run_cell(source, file, namespace):
    """Execute one cell, whose notebook extras such as %magic and !shell lines become calls of the
    shell above.
    """
    source = TransformerManager().transform_cell(source)
    # For words about a line.
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    waiting = eval(_compile(source, file, "exec"), namespace)
    while waiting is not None:  # a cell that awaits is a coroutine
        try:
            waiting.send(None)
        except StopIteration:
            break
