"""Execute a student's cells as a notebook does, statement by statement."""

import ast
import asyncio
import builtins
import importlib.machinery
import importlib.util
import linecache
import selectors
import sys
import time
import types
import weakref
from asyncio import _get_running_loop, _set_running_loop
from codeop import Compile
from contextlib import suppress
from pathlib import Path

import IPython
from guard import was_taken_away
from inside.shell import Shell, display
from inside.timing import OutOfTime, alarm
from IPython.core.inputtransformer2 import TransformerManager

CELLS_SECONDS = 60  # of work for all cells; after that each gets a second
NAMING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Patient(selectors.SelectSelector):
    """Looks by itself ten times a second, since nothing can wake it."""

    def select(self, timeout=None):
        """What is ready, after a tenth of a second at most."""
        return super().select(0.1 if timeout is None else min(timeout, 0.1))


def without_sockets():
    """Give all event loops what works without the pair of sockets by which others wake them: the
    box refuses it.
    """
    selectors.DefaultSelector = Patient
    for name in ("_make_self_pipe", "_close_self_pipe", "_write_to_self"):
        setattr(asyncio.SelectorEventLoop, name, lambda loop: None)


class Notebook:
    """Executes cells as a notebook does, also after one fails.

    Where functions are taken away, a statement that calls one is left out; what it would have named
    is `missing`. From then on an error no longer ends its cell, for it may come from that.
    """

    def __init__(self, folder, taken, endless=()):
        # A module of its own: a student's `from time import time` must not reach the names of this
        # file.
        sys.modules["__main__"] = module = types.ModuleType("__main__")
        self.namespace, self.problems = vars(module), []
        self.taken, self.left_out = taken, False
        self.missing, self.again = {}, []
        self.endless = [*endless]  # statements that used up their time, here or in another process
        # As in IPython: what a cell imports from __future__ holds for those after it.
        self.compile = _compiler(ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        without_sockets()
        self.loop = asyncio.new_event_loop()
        weakref.finalize(self, self.loop.close)
        shell = Shell(self)
        self.namespace |= {"get_ipython": lambda: shell, "display": display}
        # What IPython keeps is looked at, not used.
        self.namespace |= {"In": [""], "Out": {}, "_": "", "__": "", "___": ""}
        self.namespace["__builtins__"] = builtins  # a module, as at home
        IPython.get_ipython = self.namespace["get_ipython"]
        paths = [Path(path).resolve() for path in sys.path if path]
        libraries = [path for path in paths if not folder.resolve().is_relative_to(path)]
        sys.path += [str(folder), ""]  # last, so that a bundle handed in whole hides nothing
        sys.path_hooks.insert(0, self._finder_of(folder.resolve(), libraries))

    def run(self, cells, seconds):
        """Execute all cells, then again those that need what a cell further down defines; functions
        and classes that were defined further down still count.
        """
        first, later = [(*one, {**self.namespace}) for one in enumerate(cells, 1)], []
        for waiting, next_time in ((first, later), (later, None)):
            done = {**self.namespace}
            for number, cell, before in waiting:
                self.cell = f"<{cell['name']}, cell {number}>"
                try:
                    # Long computations of the student's own must not use up what the answers need.
                    alarm(max(1, min(seconds, CELLS_SECONDS - time.process_time())))
                    self.run_cell(cell["source"], self.cell)
                except BaseException as problem:
                    # An UnboundLocalError, which is one as well, no other cell can mend.
                    if type(problem) is NameError and next_time is not None:
                        next_time.append((number, cell, {**self.namespace}))
                    else:
                        words = f"{type(problem).__name__}: {problem}"[:300].removesuffix(": ")
                        self.problems.append([cell["name"], words])
                finally:
                    alarm(0)
                self._put_back(done, before)
        done = {**self.namespace}
        for statement, file, before in self.again:
            with suppress(BaseException):
                alarm(1)
                self._evaluate(statement, file, self.namespace, self.compile)
            self._put_back(done, before)
        alarm(0)

    def _put_back(self, done, before):
        """Put back functions and classes that were defined after a cell, or a statement, failed.
        Other names may be what the cells that are executed again need of each other.
        """
        for name, value in done.items():
            if isinstance(value, types.FunctionType | type) and before.get(name) is not value:
                self.namespace[name] = value

    def run_cell(self, source, file):
        """Execute one cell, whose notebook extras such as %magic and !shell lines become calls of
        the shell above.
        """
        source = TransformerManager().transform_cell(source)
        # For words about a line.
        linecache.cache[file] = (len(source), None, source.splitlines(True), file)
        self._execute(source, file, self.namespace, self.compile)

    def _execute(self, source, file, namespace, compiler):
        tree = ast.parse(source, file)
        compiler(tree, file, "exec")  # so that nothing runs where a part is wrong
        for statement in tree.body:
            place = [file, statement.lineno]
            try:
                if place in self.endless:
                    raise OutOfTime("took too long")
                self._evaluate(statement, file, namespace, compiler)
            except OutOfTime:
                if file == self.cell:
                    self.endless.append(place)
                raise
            except Exception as problem:
                if not self._leave_out(statement, problem, file, namespace):
                    raise

    def _evaluate(self, statement, file, namespace, compiler):
        code, before = compiler(ast.Module([statement], []), file, "exec"), _get_running_loop()
        _set_running_loop(self.loop)  # as in a kernel, where it runs while any cell does
        try:
            waiting = eval(code, namespace)
            if waiting is not None:  # a statement that awaits is a coroutine
                _set_running_loop(None)
                self.loop.run_until_complete(waiting)
        finally:
            _set_running_loop(before)  # a magic may have executed this within another statement

    def _leave_out(self, statement, problem, file, namespace):
        """Whether a statement failed since something is taken away; notes what is missing now."""
        follows = self.left_out and not isinstance(statement, ast.Raise)
        if not (self.taken and (follows or was_taken_away(problem))):
            return False
        self.left_out = True
        if isinstance(problem, NameError) and namespace is self.namespace:
            self.again.append((statement, file, {**self.namespace}))
        first = [*getattr(statement, "decorator_list", []), statement][0]
        line = linecache.getline(file, first.lineno).strip()[:100]
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.missing.setdefault(node.id, line)
            elif isinstance(node, NAMING):
                self.missing.setdefault(node.name, line)
        return True

    def _finder_of(self, scratch, libraries):
        """Finds modules that were handed in or written by cells; they are executed like these.

        Where the course was installed below the folder that the box takes, so are the libraries.
        """

        class Loader(importlib.machinery.SourceFileLoader):
            def exec_module(loader, module):
                source = importlib.util.decode_source(loader.get_data(loader.path))
                self._execute(source, loader.path, vars(module), _compiler(0))

        class Fresh(importlib.machinery.FileFinder):
            def find_spec(finder, *what):
                finder.invalidate_caches()  # cells write files faster than a folder's date can tell
                return super().find_spec(*what)

        def find(folder):
            place = Path(folder).resolve()
            inside = place.is_relative_to(scratch) and not any(map(place.is_relative_to, libraries))
            if not (inside and place.is_dir()):  # a zip file has a finder of Python's
                raise ImportError(f"{folder} holds no modules of the student")
            return Fresh(folder, (Loader, [".py"]))

        return find


def _compiler(flags):
    compiler = Compile()
    compiler.flags = flags
    return compiler
