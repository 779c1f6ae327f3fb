"""The course on a hosted notebook server, Google Colab or Kaggle, which comes with its own torch.

The first cell of each notebook, which `python -m course hosted` writes, fetches the course there
and calls `set_up`. Anywhere else that cell does nothing.
"""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
BADGES = re.compile(r"\n*\[!\[Open in Colab\].*")  # which come from other hosts
DRIVE = Path("/content/drive/MyDrive")
GIVEN = (
    "torch",
    "torchvision",
    "numpy",
    "pandas",
)  # never changed: the server's parts fit together
# What a doctor may advise there: other versions of what is given would break the server.
REMEDY = (
    "run the first cell of a lesson again; if that does not help, start a new runtime, which has"
    " the server's own libraries, and begin with that cell"
)

CELL = """\
# On Google Colab and Kaggle this fetches the course. Anywhere else it does nothing.
import os
import subprocess
import sys

if "google.colab" in sys.modules or "KAGGLE_KERNEL_RUN_TYPE" in os.environ:
    source = os.environ.get("COURSE_REPOSITORY", "{source}")
    folder = os.environ.setdefault("COURSE_FOLDER", os.path.abspath("from-batchnorm-to-int8"))
    if not os.path.exists(folder):
        if not source:
            raise ValueError("run %env COURSE_REPOSITORY=<address to clone>, then this cell again")
        if subprocess.run(["git", "clone", "--quiet", "--depth", "1", source, folder]).returncode:
            raise OSError(f"{{source}} cannot be cloned; on Kaggle, switch on Internet in Settings")
    sys.path.insert(0, folder)
    from course import hosted

    hosted.set_up()
"""


def set_up() -> None:
    """Install what is missing, keep answers where they outlive the session, and go to the
    notebooks' folder.
    """
    missing = [need for need in needed() if not installed(need)]
    if missing:
        print(f"installing {', '.join(missing)}")
        constraints = [f"{name}=={importlib.metadata.version(name)}" for name in GIVEN]
        pip = [sys.executable, "-m", "pip", "install", "--quiet", *missing, *constraints]
        subprocess.run(pip, check=True)
    if DRIVE.is_dir() and "COURSE_MINE" not in os.environ:
        kept = DRIVE / "from-batchnorm-to-int8"
        os.environ["COURSE_MINE"] = str(kept / "mine.py")
        move_answers(kept)
    # For a command that a cell starts.
    path = [str(REPOSITORY), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, dict.fromkeys(path)))
    os.chdir(REPOSITORY / "notebooks")
    answers = os.environ.get("COURSE_MINE")
    if answers:
        print(f"ready; your answers are kept in {answers}")
    else:
        drive = "; or mount Drive, then run this cell and those below it again"
        drive *= "KAGGLE_KERNEL_RUN_TYPE" not in os.environ
        print(
            "ready; each notebook has a machine of its own here, which keeps your answers as long"
            " as its session: download mine.py and the folder mine, and for the next lesson bring"
            f" them (on Kaggle as a data set, from which you copy them) to {Path.cwd()}{drive}"
        )
    if not any((REPOSITORY / "data").glob("cifar*")):
        print("for all images, in this notebook: !python -m course data")


def move_answers(kept: Path) -> None:
    """Take this session's answers and networks to a folder that outlives it, unless it has some."""
    here = REPOSITORY / "notebooks" / "mine.py"
    if not here.exists() or (kept / here.name).exists():
        return
    kept.mkdir(parents=True, exist_ok=True)
    shutil.copy2(here, kept)
    if here.with_suffix("").is_dir():
        shutil.copytree(here.with_suffix(""), kept / here.stem, dirs_exist_ok=True)


def here() -> bool:
    """Whether this is such a server, judged by the environment, for a command that a cell starts
    has no `google.colab`.
    """
    return "COLAB_RELEASE_TAG" in os.environ or "KAGGLE_KERNEL_RUN_TYPE" in os.environ


def project() -> dict[str, Any]:
    """What pyproject.toml says of the course."""
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def needed() -> list[str]:
    """What a learner needs, as pyproject.toml names it, except what every server has."""
    extras = project()["optional-dependencies"]
    named = project()["dependencies"] + extras.get("study", [])
    return [need for need in named if need.partition(">=")[0] not in (*GIVEN, "jupyterlab")]


def installed(need: str) -> bool:
    """Whether a package is there and new enough, for a need such as `onnx>=1.20`."""
    name, _, least = need.partition(">=")
    there = importlib.metadata.distributions(name=name)
    return any(numbers(one.version) >= numbers(least) for one in there)


def numbers(version: str) -> list[int]:
    """Major and minor number: [2, 15] of 2.15.0+cpu."""
    return [int(part) for part in re.findall(r"\d+", version)[:2]]
