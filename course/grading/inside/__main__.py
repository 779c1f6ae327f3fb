"""The program that runs in the box: it has the cells executed and each item answered.

This process never executes a student's code, and keeps what that code must not reach: the inputs
of what is not asked yet, and the way to the grader. See `asking` for what it leaves to its
children. It knows no expected value, no seed and no name.

    python lib/inside/__main__.py JOB_FOLDER < INPUTS

Results leave by standard output, prints by standard error. A result is one frame: name length, data
length (4 bytes each), name, data.
"""

import gc
import json
import os
import struct
import sys
from pathlib import Path

ENDED = "one of your cells ended the program, so no exercise could be asked"


def send(channel, name, data):
    """Write one frame."""
    label = name.encode()
    with os.fdopen(os.dup(channel), "wb") as pipe:
        pipe.write(struct.pack("<II", len(label), len(data)) + label + data)


def main():
    """Run one submission."""
    folder = Path(sys.argv[1])
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    sys.path.insert(0, str(folder / "lib"))
    from inside.rights import give_up_rights, hide_memory

    give_up_rights(job)
    hide_memory()
    inputs = os.dup(0)
    channel = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # the student's prints join standard error; results keep a channel of their own
    sys.stdout.reconfigure(line_buffering=True)
    os.chdir(job["scratch"])
    # What is imported here stays: to look through it for garbage takes a sixth of the time.
    gc.disable()
    import torch
    import wire
    from guard import Guard
    from inside.asking import Asked

    send(channel, "started", b"")
    # As OMP_NUM_THREADS says before: forking is safe while torch has started no threads.
    torch.set_num_threads(1)
    # What forbids nothing comes first: there cells run as at home, and tell what goes wrong.
    sets = sorted({tuple(item["forbidden"]) for item in job["items"]}, key=bool)
    for forbidden in sets:
        Guard(forbidden)  # what it looks for is found once, before anything is taken away
    gc.freeze()
    gc.enable()
    ended = wire.encode({"answers": [], "problem": ENDED, "refused": False})
    told = b""
    for forbidden in sets:
        items = [item for item in job["items"] if tuple(item["forbidden"]) == forbidden]
        with Asked(job, folder, items, (inputs, channel), told) as asked:
            if asked.told and not told:
                told = asked.told
                send(channel, "cells", told)
            for item in items:
                given = os.pread(inputs, *item["inputs"])
                send(channel, item["name"], asked.answer(given) if asked.told else ended)
    os._exit(0)  # to tidy up takes long


if __name__ == "__main__":
    main()
