"""An answer tried in a process of its own, where no cell of the notebook has run.

In the notebook an answer may lean on what another cell defined, set or patched, and a later lesson
would not find that. Importing torch takes seconds, so a spare process does it while the learner is
still thinking; each serves once, and then the next one starts.
"""

import atexit
import json
import subprocess
import sys
from pathlib import Path

SECONDS = 120  # for one answer, the start of the process included
PROGRAM = """
import json, os, pathlib, sys
sys.tracebacklimit = 0  # an error in a default value or a decorator is shown by its name
from helpers.checks import Lessons, first_failure
lessons = Lessons(pathlib.Path(sys.argv[1]))
asked = sys.stdin.read()
if asked:
    name, blocks = json.loads(asked)
    failure = first_failure(lessons.items[name], lessons.define(name, blocks))
    print(failure.message if failure else "", file=sys.stderr, flush=True)
    os._exit(bool(failure))  # at once: shutting torch down takes as long as trying an answer
"""


class Spare:
    """A process that waits for one answer; it ends when this one does."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.process: subprocess.Popen | None = None
        atexit.register(self.stop)

    def start(self) -> subprocess.Popen:
        """Start a process unless one is waiting."""
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", PROGRAM, str(self.folder)],
                cwd=Path(__file__).parents[2],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        return self.process

    def try_alone(self, name: str, blocks: dict[str, str]) -> str | None:
        """What is wrong with an answer that runs alone, or None."""
        process = self.start()
        self.process = None
        try:
            _, error = process.communicate(json.dumps([name, blocks]), timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return f"alone it takes more than {SECONDS:g} seconds"
        self.start()
        if process.returncode == 0:
            return None
        why = error.strip() or f"it ended with {process.returncode}"
        return f"alone it fails ({why}). Define what it uses in the same cell"

    def stop(self) -> None:
        """End the waiting process, if there is one."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None
