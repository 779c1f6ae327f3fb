"""An assignment as an autograder for Gradescope, and what runs there.

Gradescope starts a container for each hand-in and throws it away afterwards; bubblewrap cannot make
its namespaces in there. What stays of the box: student code is another user without privileges, who
can open no socket and reads nothing below /autograder; its limits of memory and time; and what is
right is compared in another process, as everywhere.
"""

import io
import json
import sys
import time
import zipfile
from pathlib import Path

import nbformat

from course.grading import course, intake, judge
from course.grading.classroom import Classroom, ClassroomError, write, write_private
from course.grading.course import FOLDER, Exercise

ROOT = FOLDER.parents[1]
CODE = ("helpers", "course", "pyproject.toml", "constraints.txt", "data/sample")
INSTALLED = "/opt/course"  # where student code may look, too

SETUP = f"""\
#!/usr/bin/env bash
# Gradescope runs this once, when it builds the image.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"
apt-get update
apt-get install --yes python3-venv
python3 -m venv {INSTALLED}/uv
{INSTALLED}/uv/bin/pip install --quiet uv
export UV_PYTHON_INSTALL_DIR={INSTALLED}/python
{INSTALLED}/uv/bin/uv venv --python {sys.version_info[0]}.{sys.version_info[1]} {INSTALLED}/venv
{INSTALLED}/uv/bin/uv pip install --python {INSTALLED}/venv/bin/python --torch-backend cpu \\
  --requirements pyproject.toml --extra study --constraints constraints.txt
"""

RUN = f"""\
#!/usr/bin/env bash
# Gradescope runs this for each hand-in, as root; source/, submission/ and results/ lie beside it.
here=$(dirname "$(readlink -f "$0")")
chmod 700 "$here"
cd "$here/source"
exec "${{COURSE_PYTHON:-{INSTALLED}/venv/bin/python}}" -m course.grading.gradescope "$here"
"""


def pack(room: Classroom, exercise: Exercise) -> Path:
    """Write the zip file that is uploaded to Gradescope, with the secret of the class in it."""
    name, data = exercise.assignment.name, io.BytesIO()
    bundle = room.folder / "released" / name
    if not bundle.is_dir():
        raise ClassroomError(f"{name} was not released: run `grade release {name}` first")
    folder = exercise.folder.relative_to(ROOT).as_posix()
    paths = course.listed_files(*CODE, folder)
    # Of the exercise also what was not added to git yet, for grading at home has it.
    paths += course.listed_files("--others", "--exclude-standard", folder)
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in dict.fromkeys(paths):
            archive.write(ROOT / path, path)
        for path in (bundle.with_suffix(".zip"), *sorted(bundle.iterdir())):
            archive.write(path, Path("class/released", path.relative_to(bundle.parent)))
        archive.write(room.folder / "secret", "class/secret")
        for script, text in {"setup.sh": SETUP, "run_autograder": RUN}.items():
            info = zipfile.ZipInfo(script)
            info.external_attr = 0o755 << 16
            archive.writestr(info, text)
    write_private(room.folder / "gradescope" / f"{name}.zip", data.getvalue())
    return room.folder / "gradescope" / f"{name}.zip"


def grade(here: Path) -> dict:
    """Grade the hand-in in Gradescope's folder. Returns what results.json shall hold."""
    start, room = time.monotonic(), Classroom(here / "source" / "class")
    (given,) = (room.folder / "released").glob("*.zip")
    exercise, bundle = course.load(given.stem), given.with_suffix("")
    notebook = exercise.notebook.name
    skeleton = nbformat.read(bundle / notebook, as_version=4)
    submission = intake.read(here / "submission", notebook, skeleton, bundle)
    sheets = judge.prepare(exercise, room.secret)
    (result,) = judge.grade(exercise, [submission], sheets, container=True)
    printed = [f"What your code printed:\n{result['printed']}"] if result["printed"] else []
    return {
        "tests": [_test(*item) for item in result["items"].items()],
        "output": "\n\n".join([*result["notes"], *printed]),
        "visibility": "after_published",  # for it may tell hidden inputs
        "stdout_visibility": "hidden",
        "execution_time": round(time.monotonic() - start),
    }


def _test(name: str, row: dict) -> dict:
    """One item as Gradescope shows it."""
    shown = [f"{word}: {text}" for word, text in row["shown"].items() if text]
    status = "passed" if row["points"] == row["of"] else "failed"
    told = {"name": name, "status": status, "output_format": "text"}
    told["output"] = "\n".join(filter(None, [row["message"], *shown]))
    return told | {"score": row["points"], "max_score": row["of"]}


def main() -> None:
    """Without results.json, Gradescope gives no mark and shows the teacher what was printed."""
    here = Path(sys.argv[1])
    write(here / "results" / "results.json", json.dumps(grade(here), indent=1))


if __name__ == "__main__":
    main()
