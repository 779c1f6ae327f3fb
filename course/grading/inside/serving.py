"""What a process does whose functions are taken away: execute the cells, then answer."""

import contextlib
import gc
import json
import os
import shutil
import struct
import sys
from pathlib import Path

import torch
from guard import take_away
from inside.answering import answer_in_child
from inside.cells import CELLS_SECONDS, Notebook
from inside.reach import copies_in, keep_out_of_reach
from inside.rights import EXECUTING, forbid_calls
from inside.timing import OutOfTime, alarm
from IPython.core.inputtransformer2 import TransformerManager


def serve(job, folder, items, pipes, known):
    """Execute the cells and say what became of them, then answer each item when its inputs come.

    `pipes` are where these come from and where answers go; `known` is what was said by a process
    before this one.
    """
    questions, answers = pipes
    forbidden = items[0]["forbidden"]
    if job["boxed"] and forbidden:
        forbid_calls(EXECUTING)
    take_away(forbidden)
    asked = []
    if job["boxed"] and forbidden:
        patterns = tuple(forbidden)
        seen = _seen(job["cells"], folder / "files", patterns)
        asked = keep_out_of_reach(patterns, seen)
    scratch = Path(job["scratch"])
    for file in (folder / "files").iterdir():  # what was handed in besides the notebook
        (shutil.copytree if file.is_dir() else shutil.copyfile)(file, scratch / file.name)
    for name in ("driver", "wire", "guard"):
        sys.modules.pop(name)  # what a student imports and changes is a copy of these
    endless = json.loads(known)["endless"] if known else []
    notebook = Notebook(scratch, bool(forbidden), endless)
    with silence() if known else contextlib.nullcontext():  # it was printed before
        notebook.run(job["cells"], job["cell_seconds"])
    take_away(forbidden, anew=bool(asked))  # what cells have imported, too
    torch.set_num_threads(1)
    gc.freeze()
    said = {"problems": notebook.problems, "endless": notebook.endless}
    say(answers, json.dumps(said).encode())
    for item in items:
        (length,) = struct.unpack("<I", questions.read(4))
        inputs = questions.read(length)
        say(answers, answer_in_child(item, inputs, notebook, scratch))


def _seen(cells, folder, forbidden):
    """The forbidden functions of which cells and files hold copies, which a teacher is told of."""
    seen, files = set(), [path for path in folder.rglob("*.py") if path.is_file()]
    with contextlib.suppress(OutOfTime, OSError):
        alarm(CELLS_SECONDS)
        texts = [path.read_text(encoding="utf-8", errors="replace") for path in files]
        for cell in cells:
            with contextlib.suppress(Exception):  # what it is will be said when it is executed
                texts.append(TransformerManager().transform_cell(cell["source"]))
        seen = copies_in(texts, forbidden)
    alarm(0)
    return seen


def framed(data):
    """Bytes with their length before them."""
    return struct.pack("<I", len(data)) + data


def say(pipe, data):
    """Send bytes to the process that asks."""
    pipe.write(framed(data))
    pipe.flush()


@contextlib.contextmanager
def silence():
    """Let nothing be printed."""
    streams = [(stream, os.dup(stream)) for stream in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream, _ in streams:
        os.dup2(nowhere, stream)
    yield
    sys.stdout.flush()
    for stream, kept in streams:
        os.dup2(kept, stream)
