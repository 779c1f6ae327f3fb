"""Each lesson with right answers that are not the course's own, as a learner has them in mine.py:
what the check accepts must not break a later cell.
"""

import ast
import os

import nbformat
import pytest
from nbclient import NotebookClient

from course.publish import runner
from course.publish.runner import SECONDS_PER_CELL
from helpers.checks.lessons import TITLE
from tests.exercises.test_answers import ANSWERS, COURSE, changed, source_of

LESSONS = [path for path in runner.lessons() if f"lesson_{path.name.split('_')[0]}" in ANSWERS]


def mine(which: int) -> str:
    """A file with a right answer to every exercise, the first or the last in the list."""
    blocks = []
    for answers in ANSWERS.values():
        for function, given in answers.items():
            answer = changed(given.get("base") or COURSE.solution(function), given["right"][which])
            code = source_of(function, answer)
            ast.parse(code)
            blocks.append(f"{TITLE.format(function)}\n\n{code}\n")
    return "\n\n".join(blocks)


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, -1])
@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_runs_with_other_right_answers(path, which, tmp_path):
    (tmp_path / "mine.py").write_text(mine(which), encoding="utf-8")
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=SECONDS_PER_CELL["quick"],
        resources={"metadata": {"path": str(path.parent)}},
    )
    env = {name: value for name, value in os.environ.items() if name != "COURSE_HEADLESS"}
    env |= {"PROFILE": "quick", "COURSE_MINE": str(tmp_path / "mine.py")}
    client.execute(env=env)
    printed = "".join(
        output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", [])
    )
    assert "solution of the course" not in printed
