"""The course on a hosted notebook server, Google Colab or Kaggle, which comes with its own torch.

The first cell of each notebook, which `python -m course hosted` writes, fetches the course there
and calls `set_up`. Anywhere else that cell does nothing.
"""

import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
DRIVE = Path("/content/drive/MyDrive")
GIVEN = (
    "torch",
    "torchvision",
    "numpy",
    "pandas",
)  # never changed: the server's parts fit together

CELL = """\
# On Google Colab and Kaggle this fetches the course. Anywhere else it does nothing.
import os
import subprocess
import sys

if "google.colab" in sys.modules or "KAGGLE_KERNEL_RUN_TYPE" in os.environ:
    source = os.environ.get("COURSE_REPOSITORY", "{source}")
    folder = os.path.abspath("from-batchnorm-to-int8")
    if not os.path.exists(folder):
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", source, folder], check=True)
    sys.path.insert(0, folder)
    from course import hosted

    hosted.set_up()
"""


def set_up() -> None:
    """Install what is missing, keep answers where they last, and go to the notebooks' folder."""
    missing = [name for name in needed() if not installed(name)]
    if missing:
        print(f"installing {', '.join(missing)}")
        constraints = [f"{name}=={importlib.metadata.version(name)}" for name in GIVEN]
        pip = [sys.executable, "-m", "pip", "install", "--quiet", *missing, *constraints]
        subprocess.run(pip, check=True)
    if DRIVE.is_dir():
        os.environ.setdefault("COURSE_MINE", str(DRIVE / "from-batchnorm-to-int8" / "mine.py"))
    os.chdir(REPOSITORY / "notebooks")
    answers = os.environ.get("COURSE_MINE")
    if answers:
        print(f"ready; your answers are kept in {answers}")
    else:
        print("ready; your answers last as long as this session: download mine.py, or mount Drive")


def needed() -> list[str]:
    """What a learner needs, as pyproject.toml names it, but for what every server has."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    named = project["dependencies"] + extras.get("study", [])
    names = [re.split(r"[ <>=!~;\[]", name)[0] for name in named]
    return [name for name in names if name not in (*GIVEN, "jupyterlab")]


def installed(name: str) -> bool:
    """Whether a distribution of this name is there, in whatever version."""
    return any(importlib.metadata.distributions(name=name))
