"""What a student's code may not reach where library functions are taken away: their old selves.

Python tells a hook of such attempts, and no code can take the hook back.
"""

import errno
import importlib.machinery
import linecache
import os
import sys

from guard import LIBRARIES, functions_of

STANDARD = LIBRARIES[0]  # Python's own library, within which the others may lie

OBJECTS = ("gc.get_objects", "gc.get_referrers", "gc.get_referents")
SYMBOLS = ("ctypes.dlsym", "ctypes.dlsym/handle")
# Whoever imports a module reads its source in this way, from the last to the first.
IMPORTING = [
    getattr(importlib.machinery.SourceFileLoader, name).__code__
    for name in ("get_data", "get_code", "exec_module")
]
_frame = sys._getframe  # before a student's cell can put another in its place


def keep_out_of_reach(packages):
    """From now on refuse to list objects, to look up symbols of C, and to read the code of these
    packages, unless they do so themselves.
    """
    ours = functions_of.__wrapped__.__code__
    folders = [os.path.join(library, package, "") for library in LIBRARIES for package in packages]
    code = (*folders, *(os.path.join(os.path.realpath(folder), "") for folder in folders))

    def refuse(event, arguments):
        if event in OBJECTS:
            refused = _frame(1).f_code is not ours
        elif event == "open" and is_code(arguments[0]):
            refused = not (is_import(_frame(1)) or asks_for_itself(_frame(1)))
        else:
            refused = event in SYMBOLS
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

    linecache.clearcache()  # what torch has read while it was imported
    sys.addaudithook(refuse)


def is_import(frame):
    """Whether a frame, and those that called it, are those of an import."""
    for code in IMPORTING:
        if frame is None or frame.f_code is not code:
            return False
        frame = frame.f_back
    return True
