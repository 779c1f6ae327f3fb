"""`python -m course.replica LESSON ...`: lessons as Google Colab runs them, in this environment.

Each notebook lies alone in an empty folder, its kernel has a module `google.colab`, and its first
cell clones the course from a local copy of this repository's last commit. Exercises are answered
with their solutions, as a learner would answer them. `make check-versions` does this with the
libraries that Colab has.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from shutil import copy2
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError
from nbformat import NotebookNode

from course.publish import runner
from helpers.checks.lessons import Lessons

SECONDS_PER_CELL = 1200
WHERE = """\
import helpers
print("helpers of", helpers.__file__)
"""


def main(names: list[str]) -> int:
    """Run the named lessons, or all; the status is 1 if any failed."""
    failed = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        bare = folder / "course.git"
        clone = ["git", "clone", "--quiet", "--bare", str(runner.REPOSITORY), str(bare)]
        subprocess.run(clone, check=True)
        module = folder / "stub" / "google" / "colab" / "__init__.py"
        module.parent.mkdir(parents=True)
        module.touch()
        (folder / "stub" / "sitecustomize.py").write_text("import google.colab\n", "utf-8")
        for path in runner.lessons(names):
            start = time.perf_counter()
            outcome = run(path, folder, bare)
            seconds = time.perf_counter() - start
            print(f"{path.stem:<28} {seconds:6.0f} s  {outcome}", flush=True)
            if outcome.startswith("FAILED"):
                failed.append(path.stem)
    return 1 if failed else 0


def run(path: Path, folder: Path, bare: Path) -> str:
    """Run one lesson from its first cell; the outcome in one line."""
    alone = folder / path.stem
    alone.mkdir()
    copy2(path, alone)
    notebook = answered(nbformat.read(alone / path.name, as_version=4))
    mine = alone / "kept" / "mine.py"
    env = {name: value for name, value in os.environ.items() if name != "COURSE_HEADLESS"}
    env |= {"COURSE_REPOSITORY": bare.as_uri(), "COURSE_MINE": str(mine)}
    env["PYTHONPATH"] = str(folder / "stub")
    where = {"metadata": {"path": str(alone)}}
    client = NotebookClient(
        notebook, timeout=SECONDS_PER_CELL, kernel_name="python3", resources=where
    )
    try:
        client.execute(env=env)
    except (CellExecutionError, CellTimeoutError, RuntimeError) as error:
        return f"FAILED  {runner.describe_failure(notebook, error)}"
    return looked_at(notebook, alone, mine)


def answered(notebook: NotebookNode) -> NotebookNode:
    """The notebook without outputs, its exercises solved, and a last cell that tells where helpers
    comes from.
    """
    lessons = Lessons(runner.NOTEBOOKS / "exercises")
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
            asked = re.findall(r"^checks\.check\((\w+)\)", cell.source, re.M)
            if asked and "raise NotImplementedError" in cell.source:
                checked = f"checks.check({asked[0]})"
                cell.source = f"{lessons.solution(asked[0])}\n\n{checked}"
    notebook.cells.append(nbformat.v4.new_code_cell(WHERE))
    return notebook


def looked_at(notebook: NotebookNode, alone: Path, mine: Path) -> str:
    """What the outputs show, or what is missing in them."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if str(alone) not in code[-1].outputs[0].text:
        return f"FAILED  {code[-1].outputs[0].text.strip()}, which is not the clone"
    answers = sum("checks.check(" in cell.source for cell in code)
    kept = mine.read_text("utf-8").count("# ---- ") if mine.exists() else 0
    if answers and not kept:
        return f"FAILED  none of {answers} answers was kept in {mine}"
    forms = [output.get("data", {}) for cell in code for output in cell.outputs]
    widgets = sum(runner.WIDGET in form for form in forms)
    figures = sum("text/html" in form for form in forms)
    return f"ok: {kept} answers kept, {figures} figures and tables, {widgets} widgets"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
