"""What a student's code may not reach where library functions are taken away: their old selves, and
places where the guard does not look.

Python tells a hook of such attempts, and no code can take the hook back.
"""

import ast
import errno
import importlib.util
import linecache
import os
import sys
import types
from contextlib import suppress
from importlib.machinery import SourceFileLoader

from guard import IMPORTING as LOADING
from guard import LIBRARIES, copies_within, functions_of, library_module

STANDARD = LIBRARIES[0]  # Python's own library, within which the others may lie

OBJECTS = ("gc.get_objects", "gc.get_referrers", "gc.get_referents")
# Symbols of C, and hooks, in which no guard looks; of a refused hook Python says nothing.
NEVER = ("ctypes.dlsym", "ctypes.dlsym/handle", "sys.addaudithook")
# Whoever imports a module reads its source in this way, from the last to the first.
IMPORTING = [
    getattr(SourceFileLoader, name).__code__ for name in ("get_data", "get_code", "exec_module")
]
# Packages that no exercise needs: one calls functions of C and tells no hook, the others fold,
# prune and quantize.
PACKAGES = ("_cffi_backend", "onnx", "onnx_ir", "onnxruntime", "onnxscript", "openvino", "nncf")
PACKAGES += ("torchao", "torch_pruning", "greenlet")
# Its compiler merges and removes, too; torch asks for it, and does without it where it is missing.
COMPILER = "triton"
# What tells of code that is executed, or becomes a function.
MADE = ("exec", "function.__new__", "object.__setattr__")
LONG = 200  # characters of a text that may be code
_frame = sys._getframe  # before a student's cell can put another in its place


def keep_out_of_reach(patterns, seen):
    """From now on refuse to list objects, to look up symbols of C, to load compiled code that was
    handed in, to import what no exercise needs, to read the code of packages that the patterns
    name, unless they do so themselves, and to make a copy of a function that they forbid, but for
    those `seen` in what was handed in, which somebody can read.

    Returns a list that will hold the files of these packages that are asked for from now on.
    """
    asked, packages = [], {pattern.partition(".")[0] for pattern in patterns}
    ours = functions_of.__wrapped__.__code__
    folders = [os.path.join(library, package, "") for library in LIBRARIES for package in packages]
    code = (*folders, *(os.path.join(os.path.realpath(folder), "") for folder in folders))

    def refuse(event, arguments):
        if event in OBJECTS:
            refused = _frame(1).f_code is not ours
        elif event == "open" and is_code(arguments[0]):
            frame, path = _frame(1), os.fsdecode(arguments[0])
            refused = not (is_import(frame, path) or asks_for_itself(frame))
            asked.append(path)
        elif event in MADE:
            refused = makes_copies(arguments, _frame(1))
        elif event in ("import", "ctypes.dlopen"):
            if belongs_to((COMPILER,), *arguments[:2]):
                raise ModuleNotFoundError(f"No module named {COMPILER!r}", name=COMPILER)
            refused = belongs_to(PACKAGES, *arguments[:2]) or is_foreign(*arguments[:2])
        else:
            refused = event in NEVER
        if refused:
            raise PermissionError(errno.EPERM, "no exercise needs this here", event)

    def makes_copies(arguments, frame):
        made = [one for one in arguments if isinstance(one, types.CodeType)]
        if not made or imports_a_library(frame):
            return False
        return not copies_within(made[0], patterns) <= seen

    def is_code(path):
        if not isinstance(path, str | bytes | os.PathLike):  # an open file's number
            return False
        real = os.path.realpath(os.fsdecode(path))
        return real.endswith((".py", ".pyc")) and real.startswith(code)

    def asks_for_itself(frame):
        # TorchScript and others read code of their own package, by way of Python's `inspect`.
        while frame and frame.f_code.co_filename.startswith(STANDARD) and not at_home(frame):
            frame = frame.f_back
        return frame is not None and at_home(frame)

    def at_home(frame):
        return frame.f_code.co_filename.startswith(code)

    libraries = tuple(map(os.path.realpath, LIBRARIES))
    modules = [*sys.modules.values()]
    loaded = {os.path.realpath(module.__file__) for module in modules if is_from_a_file(module)}

    def is_foreign(name, file=None):
        """Whether compiled code was handed in, or is loaded again, with all that was taken away."""
        if name is None or (file is None and os.sep not in name):  # a module, not a file
            return False
        path = os.path.realpath(os.fsdecode(file or name))
        again = file is not None and path in loaded
        loaded.add(path)
        return again or not path.startswith(libraries)

    linecache.clearcache()  # what torch has read while it was imported
    sys.addaudithook(refuse)
    return asked


def copies_in(texts, patterns):
    """The names of the functions, matching a pattern, of which Python's texts, or texts in them,
    hold copies that somebody can read.
    """
    found, texts = set(), [*texts]
    while texts:
        with suppress(Exception):  # no Python, or too much of it
            tree = ast.parse(texts.pop())
            texts += [
                node.value
                for node in ast.walk(tree)
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
                if len(node.value) >= LONG
            ]
            code = compile(tree, "<text>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            found |= copies_within(code, patterns)
    return found


def belongs_to(packages, module, file=None):
    """Whether a module, or the library's file that it is loaded from, is of one of the packages."""
    names = [module, library_module(os.path.realpath(file)) if isinstance(file, str) else ""]
    return any(isinstance(one, str) and one.partition(".")[0] in packages for one in names)


def imports_a_library(frame):
    """Whether a frame executes a library's module, as Python read it from its file."""
    called_by = frame.f_back
    if called_by is None or (frame.f_code, called_by.f_code) != LOADING:
        return False
    loader = called_by.f_locals["self"]
    return type(loader) is SourceFileLoader and bool(library_module(loader.path))


def is_from_a_file(module):
    """Whether Python says which file a module came from."""
    return isinstance(getattr(module, "__file__", None), str)


def is_import(frame, path):
    """Whether a frame, and those that called it, import the module of this file, by its name."""
    for code in IMPORTING:
        if frame is None or frame.f_code is not code:
            return False
        frame, inner = frame.f_back, frame
    source = importlib.util.source_from_cache(path) if path.endswith(".pyc") else path
    return sys.modules.get(library_module(source)) is inner.f_locals["module"]
