"""Run notebooks from top to bottom, each in a fresh kernel, and say in one line per notebook how it
went.
"""

import hashlib
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

from course.hosted import REPOSITORY
from course.publish import demo
from helpers.files import write_atomically
from helpers.provenance import provenance

NOTEBOOKS = REPOSITORY / "notebooks"
BUILD = REPOSITORY / "build"
RUN = "run"  # where a notebook's metadata says how it was run here
WIDGET = "application/vnd.jupyter.widget-view+json"
TALK = "talk.ipynb"  # slides for a room that has not read the course; no lesson
# What a lesson reads: the files of data/ that a call stands for, and the calls that name theirs.
DATA = REPOSITORY / "data"
READS = {
    r"pretrained\(\)": ["checkpoints/dense.safetensors"],
    r"load\(\)|headline\(|chart\(": ["results/results.csv"],
    r"headline\(|plan\(": ["results/speed.csv"],
    r"published\(|chart\(": ["results/published.csv"],
    r"ablations\.": ["results/ablations.csv"],
    r"write_demo\(": [f"checkpoints/{name}.safetensors" for name in demo.SHOWN.values()],
}
NAMED = {
    r'reference\("(\w+)"\)': "results/{}.csv",
    r'pretrained\("(\w+)"\)': "checkpoints/{}.safetensors",
}
# Quick cells take less than a minute; a cell of the full profile may train for hours.
SECONDS_PER_CELL = {"quick": 600, "full": 24 * 3600}


@dataclass(frozen=True)
class Outcome:
    """How one notebook went. `failure` names the cell and the error; None when all went well."""

    name: str
    seconds: float
    failure: str | None = None
    slowest: str = ""  # its slowest cell, with the seconds

    def line(self) -> str:
        """The progress line."""
        went = f"FAILED  {self.failure}" if self.failure else "ok"
        if self.slowest:
            went += f"  (slowest cell: {self.slowest})"
        return f"{self.name:<28} {self.seconds:6.1f} s  {went}"


def lessons(names: Iterable[str] = (), folder: Path = NOTEBOOKS, talk: bool = False) -> list[Path]:
    """The notebooks in order, or those whose names start with one of `names` (04 is not 04b); the
    talk if you like.
    """
    everything = sorted(folder.glob("[0-9][0-9]*_*.ipynb")) + [folder / TALK] * talk
    starts = {
        name: f"{name}_" if name[:2].isdigit() and "_" not in name else name for name in names
    }
    for name, start in starts.items():
        if not any(path.name.startswith(start) for path in everything):
            raise ValueError(
                f"no lesson starts with {name!r}; there are {', '.join(p.stem for p in everything)}"
            )
    return [
        path for path in everything if not starts or path.name.startswith(tuple(starts.values()))
    ]


def executed(path: Path) -> Path:
    """A notebook as it was run here last, or as it came with the course if its present cells were
    not run here, or not to the end, or in a hurry.
    """
    run_here = BUILD / "notebooks" / path.name
    if not run_here.exists():
        return path
    ran, cells = nbformat.read(run_here, as_version=4), sources(path)
    here = ran.metadata.get(RUN, {})
    shipped = nbformat.read(path, as_version=4)
    has_outputs = shipped.metadata.get("code") == code_digest(shipped)
    in_a_hurry = here.get("profile") == "quick" or here.get("beside others")
    if sources(run_here) != cells:
        why = "was edited since it was run here"
    elif here.get("failure"):
        why = "failed when it was run here"
    elif in_a_hurry and has_outputs:  # few images, and times that other lessons disturbed
        why = "was run here quickly, or beside others (to show yours: PROFILE=full, one at a time)"
    elif ran.metadata.get("made_from", {}) != made_from(ran):
        why = "was run here with other tables or networks"
    else:
        return run_here
    print(f"{path.name} {why}: shown with the outputs that {path.parent.name}/ has")
    return path


def is_too_quick(ran: NotebookNode) -> bool:
    """Whether its text speaks of the full profile, and it was run in the quick one."""
    full = any("PROFILE=full" in cell.source for cell in ran.cells)
    return full and ran.metadata.get(RUN, {}).get("profile") == "quick"


def sources(path: Path) -> list[str]:
    """The cells of a notebook, without their outputs."""
    return [cell.source for cell in nbformat.read(path, as_version=4).cells]


def run_lesson(path: Path, output: Path, profile: str, **env: str) -> Outcome:
    """Run one notebook in a kernel of its own; the copy with its outputs is written even when a
    cell fails.
    """
    try:
        notebook = nbformat.read(path, as_version=4)
    except Exception as error:  # whatever stands in the file
        output.unlink(missing_ok=True)
        return Outcome(path.stem, 0.0, f"cannot be read: {first_line(str(error))}")
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    notebook.metadata |= {"made_from": made_from(notebook), "code": code_digest(notebook)}
    start, failure, shares_cores = time.perf_counter(), None, bool(env)
    env = {**os.environ, **env}
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],
        store_widget_state=False,
        startup_timeout=300,
        timeout=SECONDS_PER_CELL[profile],
        resources={"metadata": {"path": str(path.parent)}},
    )
    try:
        # Headless: no file of a learner is read or written.
        client.execute(
            env=env | {"PROFILE": profile, "COURSE_HEADLESS": "1", "PYTHONHASHSEED": "0"}
        )
    except Exception as error:  # of a cell, or of the kernel
        failure = describe_failure(notebook, error)
    seconds = time.perf_counter() - start
    here = provenance()
    notebook.metadata[RUN] = here | {
        "failure": failure,
        "profile": profile,
        "beside others": shares_cores,
        "threads": env.get("OMP_NUM_THREADS", here["threads"]),
    }
    write_atomically(output, nbformat.writes(notebook))
    return Outcome(path.stem, seconds, failure, slowest_cell(notebook))


def slowest_cell(notebook: NotebookNode) -> str:
    """The cell that took longest, with its seconds, as the kernel noted them."""
    seconds = {"none": 0.0}
    for cell in notebook.cells:
        noted = cell.metadata.get("execution", {})
        if "shell.execute_reply" in noted:
            begun, ended = (
                datetime.fromisoformat(noted[name])
                for name in ("iopub.status.busy", "shell.execute_reply")
            )
            seconds[cell.id] = (ended - begun).total_seconds()
    name = max(seconds, key=seconds.__getitem__)
    return f"{name} {seconds[name]:.0f} s"


def describe_failure(notebook: NotebookNode, error: Exception) -> str:
    """Name the cell and the error in one line."""
    code = [
        (number, cell) for number, cell in enumerate(notebook.cells, 1) if cell.cell_type == "code"
    ]
    for number, cell in code:
        for output in cell.outputs:
            if output.output_type == "error":
                return f"cell {number} ({cell.id}): {output.ename}: {first_line(output.evalue)}"
    number, cell = next(
        (pair for pair in reversed(code) if "execution" in pair[1].metadata), (0, None)
    )
    where = f"cell {number} ({cell.id})" if cell else "before the first cell"
    return f"{where}: {type(error).__name__}: {first_line(str(error))}"


def first_line(text: str) -> str:
    """A message without what follows it."""
    return (text.strip() or "no message").splitlines()[0]


def made_from(notebook: NotebookNode) -> dict[str, str]:
    """The tables and networks of data/ that a notebook's code reads, each with the start of its
    SHA-256.
    """
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    read = {
        name for call, names in READS.items() if re.search(rf"\b(?:{call})", code) for name in names
    }
    read |= {path.format(name) for call, path in NAMED.items() for name in re.findall(call, code)}
    # What is not there ends its cell when that runs, with an error that names it.
    there = [name for name in sorted(read) if (DATA / name).exists()]
    return {name: hashlib.sha256((DATA / name).read_bytes()).hexdigest()[:12] for name in there}


def code_digest(notebook: NotebookNode) -> str:
    """A short text that tells the code of one notebook from another's; comments do not count, nor
    does the cell for hosted servers.
    """
    cells = [c for c in notebook.cells if c.cell_type == "code" and c.id != "hosted"]
    lines = [re.sub(r"(^|\s+)# .*", "", line) for c in cells for line in c.source.splitlines()]
    return hashlib.sha256("\n".join(filter(str.strip, lines)).encode()).hexdigest()[:12]


def publish(executed: Path, target: Path) -> bool:
    """Write an executed notebook as it is committed, without widgets and times; False if it was
    edited meanwhile, or what it reads was, or it speaks of another profile.
    """
    notebook = nbformat.read(executed, as_version=4)
    why = ""
    if sources(executed) != sources(target):
        why = "was edited while it ran"
    elif notebook.metadata.get("made_from", {}) != made_from(notebook):
        why = "reads tables or networks that changed while it ran"
    elif is_too_quick(notebook):
        why = "speaks of outputs of the full profile (PROFILE=full in the environment)"
    if why:
        print(f"{target.name} {why}, and is left as it is: run it again")
        return False
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            # A live widget, such as a progress bar, is of no use to a later reader.
            cell.outputs = [
                output for output in cell.outputs if WIDGET not in output.get("data", {})
            ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata = {
        "kernelspec": kernel,
        "language_info": {"name": "python"},
        "made_from": made_from(notebook),
        "code": code_digest(notebook),
    }
    nbformat.validate(notebook)
    write_atomically(target, nbformat.writes(notebook) + "\n")
    return True
