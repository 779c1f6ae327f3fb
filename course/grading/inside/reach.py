"""What a student's code may not reach where library functions are taken away: their old selves, and
places where the guard does not look.

Python tells a hook of such attempts, and no code can take the hook back.
"""

import errno
import importlib.machinery
import importlib.util
import linecache
import os
import sys

from guard import LIBRARIES, functions_of, library_module

STANDARD = LIBRARIES[0]  # Python's own library, within which the others may lie

OBJECTS = ("gc.get_objects", "gc.get_referrers", "gc.get_referents")
# Symbols of C, and hooks, in which no guard looks; of a refused hook Python says nothing.
NEVER = ("ctypes.dlsym", "ctypes.dlsym/handle", "sys.addaudithook")
# Whoever imports a module reads its source in this way, from the last to the first.
IMPORTING = [
    getattr(importlib.machinery.SourceFileLoader, name).__code__
    for name in ("get_data", "get_code", "exec_module")
]
# Packages that no exercise needs: one calls functions of C and tells no hook, the others fold,
# prune and quantize.
PACKAGES = ("_cffi_backend", "onnx", "onnx_ir", "onnxruntime", "onnxscript", "openvino", "nncf")
PACKAGES += ("torchao", "torch_pruning")
_frame = sys._getframe  # before a student's cell can put another in its place


def keep_out_of_reach(packages):
    """From now on refuse to list objects, to look up symbols of C, to load compiled code that was
    handed in, to import what no exercise needs, and to read the code of these packages, unless
    they do so themselves.

    Returns a list that will hold the files of theirs that are asked for from now on.
    """
    asked = []
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
        elif event in ("import", "ctypes.dlopen"):
            refused = is_needless(arguments[0]) or is_foreign(*arguments[:2])
        else:
            refused = event in NEVER
        if refused:
            raise PermissionError(errno.EPERM, "no exercise needs this here", event)

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


def is_needless(module):
    """Whether a module belongs to a package that no exercise needs."""
    return isinstance(module, str) and module.partition(".")[0] in PACKAGES


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
