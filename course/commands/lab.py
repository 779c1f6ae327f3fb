"""`python -m course lab`: the lessons in a working copy, opened in JupyterLab.

What a learner changes lies in `work/`, which git ignores, so that the course can be brought up to
date underneath. `python -m course lab --update` brings new versions: a file that was not touched is
replaced, and beside one that was changed the new version is put as NAME.new.ipynb.
"""

import argparse
import contextlib
import hashlib
import json
import os
import subprocess
import sys
from itertools import chain, count
from pathlib import Path
from shutil import copy2, copytree

from course.commands import doctor
from course.hosted import REPOSITORY
from helpers.files import write_atomically

NOTEBOOKS = REPOSITORY / "notebooks"
WORK = REPOSITORY / "work"
MADE = REPOSITORY / "build" / "assignments"
FIRST = "00_start_here.ipynb"
COPIED = "copied.json"  # which version each file of the working copy began as


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    parser.add_argument(
        "--folder",
        type=Path,
        default=WORK,
        help="where you work (default: work/ beside the notebooks); lessons also write to build/"
        " beside it; `demo` shows what you keep there if COURSE_MINE is FOLDER/mine.py",
    )
    parser.add_argument("--update", action="store_true", help="bring new versions, open nothing")


def run(arguments: argparse.Namespace) -> int:
    """Make the working copy or bring it up to date, and open the first lesson."""
    for line in bring_up_to_date(arguments.folder):
        print(line)
    if arguments.update:
        return 0
    jupyter = [sys.executable, "-m", "jupyterlab", FIRST]  # `jupyter lab` takes the first on PATH
    # In a container one often is root, as whom Jupyter starts only if it is told to.
    jupyter += ["--allow-root"] * (getattr(os, "geteuid", lambda: None)() == 0)
    process = subprocess.Popen(jupyter, cwd=arguments.folder)
    while True:
        with contextlib.suppress(KeyboardInterrupt):  # which Jupyter gets too: it asks, and ends
            return process.wait()


def bring_up_to_date(folder: Path) -> list[str]:
    """Copy what is new, and return a sentence for each thing that a learner has to know."""
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / COPIED
    try:
        began = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    except ValueError as error:
        remedy = "delete it, and what you changed is kept all the same"
        raise ValueError(f"{record} cannot be read ({error}): {remedy}") from error
    told = []
    answers = NOTEBOOKS / "mine.py"
    if not began and answers.exists() and not (folder / "mine.py").exists():
        copy2(answers, folder / "mine.py")
        if (NOTEBOOKS / "mine").is_dir():
            copytree(NOTEBOOKS / "mine", folder / "mine", dirs_exist_ok=True)
        told.append(f"Your answers are now in {folder / 'mine.py'}.")
    for name, source in _what_is_copied(folder).items():
        target = place_for(source, folder / name, began.get(name))
        if target is not None:
            write_atomically(target, source.read_bytes())
        if target not in (None, folder / name):
            told.append(f"{name}: yours is kept, since you changed it; the new one is {target}")
        began[name] = digest(source)
    write_atomically(record, json.dumps(began, indent=1, sort_keys=True))
    return told


def _what_is_copied(folder: Path) -> dict[str, Path]:
    """Lessons, exercises, and assignments as they are handed out, by their names in the working
    copy.
    """
    files = [*sorted(NOTEBOOKS.glob("*.ipynb")), *sorted(NOTEBOOKS.glob("exercises/*.py"))]
    copied = {path.relative_to(NOTEBOOKS).as_posix(): path for path in files}
    for bundle in _assignments(folder):
        # Who opened one there left folders of Python's and Jupyter's, and files of the system's.
        for path in sorted(p for p in bundle.glob("[!.]*") if p.is_file() and p.suffix != ".ini"):
            copied[f"assignments/{bundle.name}/{path.name}"] = path
    return copied


def _assignments(folder: Path) -> list[Path]:
    """The folders of the assignments without solutions: made here where the course has their
    sources, else as they came with it.
    """
    sources = NOTEBOOKS / "assignments"
    if any(sources.glob("*/specification.py")):
        from course.grading import handout  # which an edition for students does not hold

        # A course that many share may be one that they cannot write to.
        can_write = doctor.writing(REPOSITORY, "").good
        return handout.for_practice(sources, MADE if can_write else folder / ".assignments")
    return [path.parent for path in sorted(sources.glob("*/visible.safetensors"))]


def place_for(source: Path, target: Path, began: str | None) -> Path | None:
    """Where a file of the course goes in the working copy, of which `began` is the version that
    came last; None if nothing is new.
    """
    if not target.exists():
        return target
    now = digest(target)
    newest = digest(source)
    if newest in (now, began):
        return None
    if now == began:  # not touched since
        return target
    beside = (target.with_suffix(f".new{n}{target.suffix}") for n in chain([""], count(2)))
    return next(path for path in beside if not path.exists() or digest(path) == began)


def digest(path: Path) -> str:
    """Tells one version of a file from another."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
