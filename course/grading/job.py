"""The folder that a box sees, and running it: who works on what, with which files and modules."""

import json
import os
import secrets
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from course.grading import box, machine
from course.grading.course import Exercise
from course.grading.intake import Submission
from helpers.checks.specification import Item

HERE = Path(__file__).parent
CELL_SECONDS = 20.0
# The instant check is not part of the marks, so in the box it does nothing.
SILENT_CHECK = "def check(name):\n    pass\n"

Work = dict[
    str, tuple[Item, bytes]
]  # what to answer, with the encoded inputs, under names for the results


@dataclass(frozen=True)
class Place:
    """Where the work on one submission is done: for which assignment, within which limits, in a box
    or not.
    """

    exercise: Exercise
    limits: box.Limits
    boxed: bool
    container: bool = False  # one that is thrown away stands in the place of bubblewrap

    def run(self, submission: Submission, work: Work, view: bool = False) -> box.BoxResult:
        """Run the submission's cells, then each item; with `view` the inputs are answers to look
        at.
        """
        if self.boxed:
            machine.require_unseen(self.exercise.folder)
        if self.container:
            machine.require_root()
        with machine.private_folder() as folder:
            self.build(folder, submission, work, view)
            if self.container:  # another user must find the way to the job
                os.chmod(folder.parent, 0o711)
            runs = len({item.forbidden for item, _ in work.values()})
            # Cells run once for each set of forbidden functions; each further run adds a third.
            limits = self.limits if view else self.limits.times((2 + runs) / 3)
            outcome = box.run(folder, limits, self.boxed, self.container)
        if "started" not in outcome.frames:  # no fault of the student's, who would get no points
            raise machine.BoxError(_did_not_start(outcome))
        return outcome

    def build(self, folder: Path, submission: Submission, work: Work, view: bool = False) -> None:
        """Fill the folder that the box will see, and write the inputs in a file beside it."""
        for name in ("lib", "lib/inside", "files", "scratch"):
            (folder / name).mkdir()
        for path in (HERE / "inside").glob("*.py"):
            shutil.copy(path, folder / "lib" / "inside")
        for path in (HERE / "wire.py", HERE / "guard.py", self.exercise.driver):
            shutil.copy(path, folder / "lib")
        (folder / "lib" / "instant.py").write_text(SILENT_CHECK, encoding="utf-8")
        for name, data in submission.files.items():
            path = folder / "files" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        items, at = [], 0
        for name, (item, inputs) in work.items():
            forbidden = () if view else item.forbidden
            seconds = item.seconds * (2 if forbidden else 1)  # being watched takes its time
            known = {"name": name, "exercise": item.name, "function": item.function}
            of_all = self.exercise.assignment.items
            known["others"] = [one.function for one in of_all if one.name != item.name]
            known["inputs"] = (len(inputs), at)  # size and place in the file
            at += len(inputs)
            items.append(known | {"forbidden": forbidden, "seconds": seconds, "view": view})
        settings = {"cells": submission.code, "cell_seconds": CELL_SECONDS, "items": items}
        settings |= {"limits": self.limits.as_rlimits(self.boxed), "boxed": self.boxed}
        bubble = self.boxed and not self.container
        settings["scratch"] = "/tmp" if bubble else str(folder / "scratch")
        settings["disks"] = (
            [f"/{disk}" for disk in machine.DISKS] if bubble else [str(folder / "scratch")]
        )
        settings["become"] = (
            secrets.randbelow(10**8) + 10**9 if self.boxed and os.geteuid() == 0 else None
        )
        (folder / "job.json").write_text(json.dumps(settings), encoding="utf-8")
        given = folder.with_name(box.INPUTS)
        given.write_bytes(b"".join(inputs for _, inputs in work.values()))
        given.chmod(0o600)
        for path in [folder, *folder.rglob("*")]:
            os.chmod(path, 0o755 if path.is_dir() else 0o644)  # nobody reads it
        if self.container:
            os.chown(folder / "scratch", settings["become"], -1)


def _did_not_start(outcome: box.BoxResult) -> str:
    """What to do where not even the program that runs a student's code came to its beginning."""
    why = outcome.reason or (outcome.printed.strip().splitlines() or ["it printed nothing"])[-1]
    remedy = (
        "if a package is missing, all those of the course must be in the environment of"
        f" {sys.executable} itself: set it up as teaching/set_up.md says, then run again"
    )
    if outcome.reason:  # a limit that is far away on a machine with time for it
        remedy = "run again with fewer --workers"
    return f"no hand-in can be run here ({why}), so none was marked; {remedy}"
