"""What stands for IPython in a notebook that is executed without it: its shell, and `display`."""

import ast
import json
import os
import re
import shlex
import types
from contextlib import suppress
from pathlib import Path

from inside import files
from IPython.utils.text import DollarFormatter


class Shell:
    """Stands for IPython: executes what measures or captures code, and what it runs or writes.

    All else, such as !pip, does nothing.
    """

    def __init__(self, notebook):
        self.notebook, self.magics = notebook, {}
        self.before = os.getcwd()  # where %cd - goes

    @property
    def user_ns(self):
        """The names that cells have defined."""
        return self.notebook.namespace

    def push(self, names):
        """Define names."""
        self.notebook.namespace |= names

    def run_cell(self, source):
        """Execute code, as a cell does."""
        self.notebook.run_cell(source, "<after run_cell>")

    def register_magic_function(self, function, magic_kind="line", magic_name=None):
        """Take a magic of the student's own."""
        self.magics[magic_kind, magic_name or function.__name__] = function

    def __getattr__(self, name):
        return self

    def __call__(self, *words, **more):
        """Take the place of any method of IPython's shell."""

    def __bool__(self):  # libraries that ask whether they run in IPython hear no
        return False

    def run_line_magic(self, name, line, *more):
        """Execute what %time measures and the file that %run names: they may define names."""
        if name == "time":  # whose line is code
            return self._timed(line)
        line = self._expanded(line)
        if own := self.magics.get(("line", name)):
            return own(line)
        if name == "pwd":
            return os.getcwd()
        if name == "run":
            self._run_file(next(word for word in _words(line) if not word.startswith("-")))
        elif name == "cd":
            folder = line.strip().removeprefix("-q ").strip().strip("'\"") or "~"
            here, folder = os.getcwd(), self.before if folder == "-" else folder
            os.chdir(Path(folder).expanduser())
            self.before = here
        else:
            self.system(f"{name} {line}")
        return None

    def _timed(self, line):
        """Execute it; the value of an expression is given back."""
        with suppress(SyntaxError):
            ast.parse(line.strip(), mode="eval")
            line = f"_timed = (\n{line}\n)"
        self.notebook.run_cell(line, "<after %time>")
        return self.notebook.namespace.pop("_timed", None)

    def _run_file(self, name):
        """Execute a Python file, or all cells of a notebook."""
        path = Path(name)
        coding = "utf-8-sig"  # some editors of Windows begin with a mark
        if path.suffix != ".ipynb":
            sources = [path.with_suffix(".py").read_text(encoding=coding)]
        else:
            cells = json.loads(path.read_text(encoding=coding))["cells"]
            sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        for part, source in enumerate(sources):
            self.notebook.run_cell(source, f"<%run {name}, part {part}>")

    def system(self, line):
        """Do what a shell does with files."""
        files.do(self._expanded(line))

    def _expanded(self, line):
        """A line with the values of what stands in it as {name} or $name, where that works."""
        with suppress(Exception):
            return DollarFormatter().vformat(line, args=[], kwargs=self.notebook.namespace)
        return line

    def run_cell_magic(self, name, line, body):
        """Execute what stands below a magic that measures or captures; skip other languages."""
        line = self._expanded(line)
        if own := self.magics.get(("cell", name)):
            return own(line, body)
        if name in ("time", "timeit", "capture", "prun"):
            words = line.split()
            if name == "capture" and words[:1] and words[0].isidentifier():
                self.notebook.namespace[words[0]] = types.SimpleNamespace(stdout="", stderr="")
            self.notebook.run_cell(body, f"{self.notebook.cell[:-1]}, below %%{name}>")
        elif name in ("writefile", "file"):
            words = _words(line)
            mode = "a" if "-a" in words else "w"
            with open(words[-1], mode, encoding="utf-8") as file:
                file.write(body)
        return None


def _words(line):
    """Those of a line; a path of Windows has backslashes, before letters."""
    return shlex.split(re.sub(r"\\(?=[\w.])", "/", line))


class Shown:
    """What `display` gives back, for what is shown anew."""

    def update(self, *objects, **named):
        """Show something in the same place."""

    display = update


def display(*objects, display_id=None, **named):
    """Print, as the picture of a plot is not looked at."""
    print(*objects)
    return Shown() if display_id else None
