"""Stop an answer that calls what its exercise asks the student to write.

Travels to students and into the box.

What counts is what is called while the answer is computed, by whatever name and however deep: no
name, comment, import or test in another cell costs anything.

`Guard` tells who called what, but code that shares a process with it can switch it off. So in the
box `take_away` puts an error in the place of the functions themselves, for good, before a student's
code runs.
"""

import ctypes
import errno
import gc
import importlib
import importlib.machinery
import linecache
import re
import sys
import sysconfig
import threading
import types
from contextlib import suppress
from fnmatch import translate
from functools import lru_cache
from operator import attrgetter

import torch
from torch.overrides import TorchFunctionMode

LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
OF_A_TEXT = "<string>"  # code that was made of one, as dataclasses do: who executes it counts
# Whoever imports a module executes it in this way, from the last to the first.
IMPORTING = (
    importlib._bootstrap._call_with_frames_removed.__code__,
    importlib.machinery.SourceFileLoader.exec_module.__code__,
)
# Where torch keeps the code of one of its functions for tensors in a processor's memory.
KERNELS = ("CPU", "MkldnnCPU", "QuantizedCPU", "NestedTensorCPU")
KERNELS += ("CompositeExplicitAutograd", "CompositeImplicitAutograd")
KERNELS += ("FuncTorchBatched", "FuncTorchBatchedDecomposition")  # those of vmap
WRITTEN_IN_C = ("builtin_function_or_method", "_ArrayFunctionDispatcher")  # the latter NumPy's
_looked_through = {}  # the modules of the packages that patterns name
# With what torch computes past the functions that `_replace_kernels` replaces, and rewrites graphs.
PAST_KERNELS = ("_jit_to_static_module", "_fuse_to_static_module", "StaticModule", "parse_ir")
PAST_KERNELS += ("Graph.create", "_create_function_from_graph", "_te.TensorExprKernel")
PAST_KERNELS += ("_last_executed_optimized_graph", "GraphExecutorState.execution_plans")
MANY_NAMES = 6  # that a function uses: those with few may be alike by chance
MOSTLY = 0.85  # of the names of two functions
# Modules that torch does not import by itself, of whose functions copies are to be known.
RARE = ("torch.nn.utils.prune", "torch.fx.passes.dialect.common.cse_pass")
RARE += ("torch.fx.experimental.optimization",)
YOURSELF = "this exercise asks you to write yourself"
_set_profile, _frame = (
    sys.setprofile,
    sys._getframe,
)  # before a student's cell can put others in their place


class Forbidden(RuntimeError):
    """An answer called what it should do itself."""


class Guard(TorchFunctionMode):
    """Raise `Forbidden` at calls of library functions whose full names match a pattern, such as
    "torch.*batch_norm*".

    Python's functions are seen by a profile function, those that torch wrote in C++ by a mode of
    torch.

    `found` says afterwards what was called, and in which line, for an answer may swallow the
    exception.
    """

    def __init__(self, patterns):
        super().__init__()
        self.patterns, self.found = tuple(patterns), ""
        self.bodies = _bodies_of(self.patterns)

    def __enter__(self):
        if self.patterns:
            _set_profile(self._see)
            threading.setprofile(self._see)  # for threads that the answer starts
            super().__enter__()
        return self

    def __exit__(self, *problem):
        if self.patterns:
            _set_profile(None)
            threading.setprofile(None)
            super().__exit__(*problem)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """See a call of one of torch's functions."""
        self._judge(
            f"{getattr(func, '__module__', None) or 'torch.Tensor'}.{func.__name__}", _frame(1)
        )
        return func(*args, **(kwargs or {}))

    def _see(self, frame, event, argument):
        """See a call of a Python function."""
        if event == "call":
            code, module = frame.f_code, _module_of(frame.f_code, frame.f_globals)
            self._judge(f"{module}.{code.co_qualname}", frame)
            if not module.startswith("torch.") and len(code.co_names) >= MANY_NAMES:
                self._judge(self.bodies.get(_body(code), ""), frame, "is in a copy of")

    def _judge(self, name, frame, does="calls"):
        if _matches(name, self.patterns) and (place := _where(frame)):
            self.found = f"{place} {does} {name}, which {YOURSELF}"
            raise Forbidden(self.found)


@lru_cache
def _any_of(patterns):
    return re.compile("|".join(map(translate, patterns)))


def _matches(name, patterns):
    if not patterns or name.endswith(".__getattr__"):  # a module or class is asked what it has
        return False
    return _any_of(patterns).match(name) is not None


def _module_of(code, names):
    """The module of a function: that of its file, whatever it was imported as."""
    if library := library_module(code.co_filename):
        return library
    name = names.get("__name__")
    return name if type(name) is str else ""  # no code of others runs in here


@lru_cache(None)
def library_module(file):
    """The name of the library module whose code a file holds; empty for other files."""
    for library in reversed(LIBRARIES):  # the first holds the others
        if file.startswith(library):
            path = file[len(library) + 1 :].removesuffix(".py")
            return re.sub(r"[/\\]", ".", path).removesuffix(".__init__")
    return ""


@lru_cache  # all objects of the process are looked through
def functions_of(patterns):
    """The Python functions whose full names match a pattern, each after its name."""
    if not patterns:
        return []
    for module in RARE:
        if _matches(f"{module}.", patterns):
            importlib.import_module(module)
    gc.unfreeze()  # what is frozen is not listed
    found = []
    for function in gc.get_objects():
        if type(function) is types.FunctionType:
            code = function.__code__
            name = f"{_module_of(code, function.__globals__)}.{code.co_qualname}"
            if _matches(name, patterns):
                found.append((name, function))
    return found


@lru_cache
def _bodies_of(patterns):
    """The names of these functions by what they do."""
    return {_body(function.__code__): name for name, function in functions_of(patterns)}


def _body(code):
    """What a function does: the same for a copy with other words and names of variables."""
    numbers = tuple(value for value in code.co_consts if isinstance(value, int | float))
    return code.co_names, numbers, code.co_argcount, code.co_nlocals


def copies_within(code, patterns):
    """The names of the functions, matching a pattern, that code holds copies of."""
    inner = [value for value in code.co_consts if isinstance(value, types.CodeType)]
    found = set().union(*(copies_within(one, patterns) for one in inner))
    known, names = _bodies_of(patterns), {*code.co_names}
    if len(names) >= MANY_NAMES and (name := known.get(_body(code))):
        found.add(name)
    if len(names) >= 2 * MANY_NAMES:  # by so many a changed copy is told, too
        found |= {
            name
            for (others, _, inputs, _), name in known.items()
            if inputs == code.co_argcount
            if len(names.intersection(others)) >= MOSTLY * len(names.union(others))
        }
    return found


def _where(frame):
    """From where a student called a library, in words; empty while a module is being imported."""
    while frame and (
        frame.f_code.co_filename.startswith(LIBRARIES)
        or frame.f_code.co_filename in (__file__, OF_A_TEXT)
    ):
        frame = frame.f_back
    if frame is None:
        return "a thread"
    if (frame.f_code, getattr(frame.f_back, "f_code", None)) == IMPORTING:
        return ""
    text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    if len(text) > 80:
        text = f"{text[:76]} ..."
    cell = re.match("<(.+), cell", frame.f_code.co_filename)  # as the box names it
    place = f" of {cell[1].removesuffix('_solution')}" if cell else ""
    return f"line {frame.f_lineno}{place}{f' ({text})' if text else ''}"


def take_away(patterns, anew=False):
    """Make library functions raise an error in this process, by whatever way they are reached.

    Called again, it takes away those of modules that were imported since. `anew`: some may have
    come that `sys.modules` does not tell of.
    """
    patterns = tuple(patterns)
    packages = {pattern.partition(".")[0] for pattern in patterns}
    modules = {name for name in sys.modules if name.partition(".")[0] in packages}
    if not patterns or (_looked_through.get(patterns) == modules and not anew):
        return
    if patterns in _looked_through:
        functions_of.cache_clear()
    _looked_through[patterns] = modules
    for name in torch._C._dispatch_get_all_op_names():
        if _matches(f"torch.ops.{name.replace('::', '.')}", patterns):
            _replace_kernels(name)
    for module in modules:
        _replace_written_in_c(module, patterns)
    _replace_past_kernels()
    for name, function in functions_of(patterns):
        code = function.__code__
        if code.co_code == _refused.__code__.co_code:
            continue
        _bodies_of(patterns)[_body(code)] = name
        with suppress(ValueError):  # one with names of a function around it is only watched
            names = {"co_name": code.co_name, "co_qualname": code.co_qualname}
            function.__code__ = _refused.__code__.replace(**names)


@lru_cache
def _replace_kernels(name):
    """Put an error in the place of one of torch's functions, where TorchScript finds it, too."""
    space, _, operator = name.partition("::")
    for key in KERNELS:
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, key):
            library = torch._C._dispatch_library("IMPL", space, key, __file__, 0)
            library.impl(operator, key, _refused, False)
            # What would bring the old code back when it is deleted must be out of reach.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))
            type(library).reset = lambda library: None


@lru_cache
def _replace_past_kernels():
    """Put an error in their place, wherever torch's modules name them."""
    replaced = {}
    for name in PAST_KERNELS:
        owner, _, last = f"_C.{name}".rpartition(".")
        new, old = _refusing(last, "torch._C"), attrgetter(f"_C.{name}")(torch)
        setattr(attrgetter(owner)(torch), last, new)
        replaced[id(old)] = new
    for module in [one for name, one in sys.modules.items() if name.partition(".")[0] == "torch"]:
        names = vars(module)
        for name in [n for n, value in names.items() if id(value) in replaced]:
            names[name] = replaced[id(names[name])]


def _replace_written_in_c(module, patterns):
    """Put an error in the place of a module's functions that Python cannot look into."""
    if module.startswith("torch") and module != "torch._C":  # see `_replace_kernels`
        return
    names = vars(sys.modules[module])
    for name in [n for n in names if _matches(f"{module}.{n}", patterns)]:
        if type(names[name]).__name__ in WRITTEN_IN_C:
            names[name] = _refusing(name, module)
    if module == "numpy._core.overrides":
        names["ARRAY_FUNCTIONS"].clear()  # NumPy's list of its own, for its documentation


def _refusing(name, module):
    """A function of this name that raises an error."""
    code = _refused.__code__.replace(co_name=name, co_qualname=name)
    return types.FunctionType(code, {**globals(), "__name__": module})


def _refused(*inputs, **named):
    raise RuntimeError("this exercise asks you to write yourself what is called here")


def was_taken_away(problem):
    """Whether an error, or one behind it, comes of what is taken away or of a program that may not
    start.
    """
    while problem is not None:
        may_not = isinstance(problem, PermissionError) and problem.errno == errno.EPERM
        # So `inspect` says it, and forgets why.
        may_not_be_read = type(problem) is OSError and "source code" in str(problem)
        if (
            may_not_be_read
            or (may_not and problem.filename is not None)
            or YOURSELF in str(problem)
        ):
            return True
        problem = problem.__cause__ or problem.__context__
    return False
