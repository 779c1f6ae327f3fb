"""Keep freed memory in the process while a network computes on a CPU.

glibc gives every block of more than 32 MB back to the system when it is freed, and the kernel
zeroes it page by page when it is asked for again. Activations are such blocks, made and freed in
every step; zeroing them took a third of a training step. Inside `with kept_memory():` freed memory
is kept; at its end it goes back to the system.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

# Names from glibc's malloc.h.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
M_MMAP_MAX = -4
# Set when the outermost block ends: for M_MMAP_MAX glibc's own default; for the thresholds the
# highest that glibc would raise them to, since it stops raising them once one is set.
GROWN = {M_MMAP_MAX: 65536, M_MMAP_THRESHOLD: 32 << 20, M_TRIM_THRESHOLD: 64 << 20}
NEVER = 2**31 - 1
# Environment variables that do the same for a whole process.
WHOLE_PROCESS = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(NEVER)}

try:
    libc = ctypes.CDLL("libc.so.6")  # only glibc has this name
except OSError:
    libc = None
if WHOLE_PROCESS.items() <= os.environ.items():
    libc = None  # nothing is left to do
_open_blocks = 0


@contextmanager
def kept_memory() -> Iterator[None]:
    """Hold on to freed memory inside the `with` block, if this is glibc.

    Blocks may be nested: memory goes back when the outermost ends.
    """
    global _open_blocks
    if libc is None:
        yield
        return
    libc.mallopt(M_MMAP_MAX, 0)
    libc.mallopt(M_TRIM_THRESHOLD, NEVER)
    _open_blocks += 1
    try:
        yield
    finally:
        _open_blocks -= 1
        if _open_blocks == 0:
            for option, value in GROWN.items():
                libc.mallopt(option, value)
            libc.malloc_trim(0)  # what is free goes back to the system
