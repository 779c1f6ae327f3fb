"""The program that runs in the box: it executes a student's cells, then each item on its inputs.

Everything here is at the mercy of the student's code, and none of it is trusted: it only computes.
It knows no expected value, no seed and no name.

    python lib/inside/__main__.py JOB_FOLDER   results by standard output, prints by standard error

A result is one frame: name length, data length (4 bytes each), name, data.
"""

import gc
import json
import os
import shutil
import struct
import sys
from pathlib import Path


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
    from inside.rights import give_up_rights

    give_up_rights(job)
    channel = os.dup(1)
    os.dup2(2, 1)  # the student's prints join standard error; results keep a channel of their own
    sys.stdout.reconfigure(line_buffering=True)
    os.chdir(scratch := Path(job["scratch"]))
    sys.path += [str(scratch), ""]  # last, so that a bundle handed in whole hides nothing
    for file in (folder / "files").iterdir():  # what was handed in besides the notebook
        (shutil.copytree if file.is_dir() else shutil.copyfile)(file, scratch / file.name)
    # What is imported here stays: to look through it for garbage takes a sixth of the time.
    gc.disable()
    # Now, before a cell can change what they keep.
    import torch
    from guard import functions_of
    from inside.answering import answer_in_child
    from inside.cells import run_cells

    gc.freeze()
    gc.enable()
    namespace, problems = run_cells(job["cells"], job["cell_seconds"])
    # As OMP_NUM_THREADS says before: forking is safe while torch has started no threads.
    torch.set_num_threads(1)
    send(channel, "cells", json.dumps(problems).encode())
    for patterns in {tuple(item["forbidden"]) for item in job["items"]}:
        functions_of(patterns)  # found once, not again in the process of each item
    gc.freeze()
    for item in job["items"]:
        data = answer_in_child(item, namespace, folder, scratch, problems)
        send(channel, item["name"], data)
    send(channel, "finished", b"")
    os._exit(0)  # threads and exit hooks of the student are not waited for


if __name__ == "__main__":
    main()
