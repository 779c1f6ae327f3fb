"""A process for the exercises that forbid the same: what they forbid is taken away in it before it
executes the student's cells, then it is asked for one answer after the other.

So whatever a cell computes ahead, starts or replaces works with no more than an answer may. The
process ends with everything that it has started before the next one begins.
"""

import contextlib
import os
import select
import shutil
import signal
import struct
import traceback
from pathlib import Path

from inside.serving import framed, serve

MOST_BYTES = 32 * 2**20  # of an answer


class Gone(Exception):
    """The process has ended, or says what no such process says."""


class Asked:
    """Such a process, to be used in a `with` statement.

    `told` is what it says of the cells; `closed` are the descriptors that it must not have, and
    `known` is what an earlier one told.
    """

    def __init__(self, job, folder, items, closed, known):
        self.job, self.ended = job, False
        questions, self.asks = os.pipe()
        self.hears, answers = os.pipe()
        self.child = os.fork()
        if self.child == 0:
            try:
                for channel in (*closed, self.asks, self.hears):
                    os.close(channel)
                pipes = [os.fdopen(questions, "rb"), os.fdopen(answers, "wb")]
                serve(job, folder, items, pipes, known)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)  # threads and exit hooks of the student are not waited for
        os.close(questions)
        os.close(answers)

    def __enter__(self):
        self.told = self._hear()
        return self

    def answer(self, inputs):
        """The encoded answers to one exercise; empty where none came."""
        ended = contextlib.suppress(OSError)
        with ended, os.fdopen(os.dup(self.asks), "wb") as pipe:
            pipe.write(framed(inputs))
        return self._hear()

    def __exit__(self, *problem):
        """End everything that the student's code has started, and clear what it wrote."""
        if self.job["boxed"] or not self._has_ended():  # its number may be another's by then
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1 if self.job["boxed"] else self.child, signal.SIGKILL)
        if not self.ended:
            os.waitpid(self.child, 0)
        os.close(self.asks)
        os.close(self.hears)
        for disk in self.job["disks"]:
            for path in Path(disk).iterdir():
                with contextlib.suppress(OSError, RecursionError):
                    _remove(path)

    def _hear(self):
        """What it says next; empty where it has ended or says too much."""
        try:
            (length,) = struct.unpack("<I", self._read(4))
            return self._read(length) if length <= MOST_BYTES else b""
        except Gone:
            return b""

    def _read(self, size):
        data = bytearray()
        while len(data) < size:
            if not select.select([self.hears], [], [], 0.2)[0]:
                if self._has_ended():
                    raise Gone  # while something that it has started holds the pipe open
                continue
            chunk = os.read(self.hears, size - len(data))
            if not chunk:
                raise Gone
            data += chunk
        return bytes(data)

    def _has_ended(self):
        """Whether the process is over; os.waitid, which would not reap it, macOS has of late."""
        self.ended = self.ended or os.waitpid(self.child, os.WNOHANG)[0] != 0
        return self.ended


def _remove(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
