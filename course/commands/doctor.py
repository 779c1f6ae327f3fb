"""`python -m course doctor`: one line per requirement, with the exact remedy."""

import argparse
import contextlib
import importlib.metadata
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

from course import hosted

COURSE = "batchnorm-to-int8"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
BUILD = hosted.REPOSITORY / "build"
GIB = 1024**3
ANEW = "delete .venv, and set up again as README says"
UPDATED = "conda env update -f environment.yml"
RUNTIME = "Microsoft's runtime (winget install Microsoft.VCRedist.2015+.x64)"
MARKS = {True: "ok ", False: "fix", None: "-- "}


class Finding(NamedTuple):
    """One line: is it good (None: not there, and only some need it), what was found, and what to do
    if it is not.
    """

    good: bool | None
    what: str
    remedy: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing to choose."""


def run(_: argparse.Namespace) -> int:
    """Print every finding; 0 when the course can run."""
    bad = 0
    for finding in (f for check in CHECKS for f in check()):
        remedy = "" if finding.good else f": {finding.remedy}"
        print(f"[{MARKS[finding.good]}] {finding.what}{remedy}")
        bad += finding.good is False
    return 1 if bad else 0


def python() -> Iterator[Finding]:
    """The version, which `python -m course` has found new enough."""
    yield Finding(True, f"Python {sys.version.split()[0]}")


def in_conda() -> bool:
    """Whether this Python is one of conda's: its packages are not to be replaced by pip's."""
    return os.path.isdir(os.path.join(sys.prefix, "conda-meta"))


def anew() -> str:
    """How the course is set up once more."""
    return UPDATED if in_conda() else ANEW


def packages() -> Iterator[Finding]:
    """The course itself, and all that a learner needs as pyproject.toml names it."""
    project = hosted.project()
    wanted = [COURSE, *project["dependencies"], *project["optional-dependencies"]["study"]]
    if hosted.here():
        wanted = hosted.needed()
    missing = [need for need in wanted if not hosted.installed(need)]
    remedy = extra("study")
    # No pip is there after an upgrade of the system's Python, for one.
    if in_conda() or not hosted.installed("pip"):
        remedy = anew()
    if hosted.here():
        remedy = hosted.REMEDY
    yield Finding(
        not missing,
        f"packages: {', '.join(missing) + ' missing' if missing else 'all there'}",
        remedy,
    )


def pip_install() -> str:
    """How to call this Python's pip, in the shell of this system."""
    if in_conda():  # the environment is active, in any of three shells
        return "python -m pip install"
    if " " not in sys.executable:
        return f"{sys.executable} -m pip install"
    call = "& " if os.name == "nt" else ""  # PowerShell takes a quoted word for a text
    return f'{call}"{sys.executable}" -m pip install'


def extra(name: str) -> str:
    """How to install what only some need."""
    return f'{pip_install()} -e ".[{name}]"' + " -c constraints.txt" * (not in_conda())


def place() -> Iterator[Finding]:
    """What is installed points to the folder in which it was set up."""
    if hosted.here():
        return
    found = importlib.metadata.distributions(name=COURSE)  # this folder's own egg-info, too
    for told in filter(None, (one.read_text("direct_url.json") for one in found)):
        address = urlsplit(json.loads(told)["url"])
        server = f"//{address.netloc}" if address.netloc else ""  # as on a drive of the network
        folder = Path(url2pathname(server + address.path)).resolve()
        same = address.scheme != "file" or folder == hosted.REPOSITORY.resolve()
        remedy = ANEW if Path(sys.prefix).name == ".venv" else f"{pip_install()} -e ."
        yield Finding(same, f"installed from {folder}", f"this is {hosted.REPOSITORY}: {remedy}")


def torch_pair() -> Iterator[Finding]:
    """torch and torchvision must come from the same place, or torchvision's operators do not
    register.
    """
    if not all(map(hosted.installed, ("torch", "torchvision"))):  # which `packages` has said
        return
    torch, problem, no_runtime = None, "", False
    first, second = map(importlib.metadata.version, ("torch", "torchvision"))
    try:
        import torch
        import torchvision

        first, second = torch.__version__, torchvision.__version__  # which name the builds, too
        torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
        # On ARM torchvision names no build.
        builds = {version.partition("+")[2] for version in (first, second)} - {""}
        if len(builds) > 1:
            problem = "they are of two builds"
    except Exception as error:  # whatever it is, the operators do not work
        problem = (str(error).splitlines() or [type(error).__name__])[0][:100]
        no_runtime = os.name == "nt" and isinstance(error, OSError)  # a library of Windows lacks
    found = f"torch {first} with torchvision {second}{problem and f' do not fit ({problem})'}"
    remedy = (
        f"take both from one place: make clean lab TORCH_INDEX={CPU_INDEX} (CPU only), or without"
        " TORCH_INDEX; without make, delete .venv and set up again, as README says"
    )
    if in_conda():
        remedy = f"take both from conda: {UPDATED}"
    if no_runtime:
        remedy = f"install {RUNTIME}, then open a new window"
    if hosted.here():
        remedy = hosted.REMEDY
    yield Finding(not problem, found, remedy)
    if torch is None:
        return
    from course.gpu import name_of_gpu  # it imports torch

    gpu = name_of_gpu() or "no NVIDIA GPU that this PyTorch can use, and none is needed"
    yield Finding(True, f"GPU: {gpu}")
    vectors = torch.backends.cpu.get_cpu_capability()
    yield Finding(True, f"{torch.get_num_threads()} threads on {os.cpu_count()} cores, {vectors}")


def space() -> Iterator[Finding]:
    """Disk for the data set, memory for training."""
    free = shutil.disk_usage(__file__).free / GIB
    yield Finding(
        free > 2, f"{free:.0f} GiB of disk free", "the data set and build/ need 2 GiB: make room"
    )
    yield writing(
        BUILD if BUILD.exists() else BUILD.parent,
        "copy the course without .venv to a folder you can write to, and set up there",
    )
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIB
        yield Finding(
            memory > 3.5,
            f"{memory:.0f} GiB of memory",
            "4 are needed; close programs, use --batch-size 32",
        )


def writing(folder: Path, remedy: str) -> Finding:
    """Try to write there: on Windows `os.access` says yes to every folder, and with a full quota
    one can still make empty files.
    """
    with contextlib.suppress(OSError), TemporaryFile(dir=folder, buffering=0) as file:
        return Finding(
            file.write(bytes(4096)) > 0, f"{folder.name}/ can be written"
        )  # a lesson shows this line
    return Finding(False, f"{folder} does not exist or cannot be written", remedy)


def data_source() -> Iterator[Finding]:
    """Which images a run would use."""
    try:
        from helpers.data import SAMPLE_FOLDER, copies_in, data_folder
    except (ImportError, OSError):  # which `packages` or `torch_pair` has said
        return
    copies = copies_in(folder := data_folder())
    found = (
        f"local copy {copies[0].name}"
        if copies
        else "the committed sample; for all images: python -m course data"
    )
    yield Finding(
        bool(copies) or SAMPLE_FOLDER.exists(),
        f"CIFAR-10: {found}",
        "git checkout -- data/sample, or unpack the course anew",
    )
    if not copies:  # then a download goes there
        yield writing(folder, "make it, or set CIFAR10_DIR to a folder you can write to")


def other_programs() -> Iterator[Finding]:
    """What only some need: reveal.js and Sphinx to present, bubblewrap and nbgrader to grade,
    Chromium to test slides and report.
    """
    present = f"make .venv/.present, or {extra('present')}"
    yield Finding(hosted.installed("sphinx-revealjs") or None, "reveal.js, for slides", present)
    try:
        from course.grading.machine import obstacle
    except ImportError:  # the students' edition does not grade
        return
    problem = obstacle()
    yield Finding(not problem or None, "bubblewrap, to grade", problem or "")
    remedy = f"make .venv/.grade, or {extra('grade')}"
    yield Finding(hosted.installed("nbgrader") or None, "nbgrader, to grade", remedy)
    yield Finding(hosted.installed("sphinx-book-theme") or None, "Sphinx, for the website", present)
    found = any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    yield Finding(found or None, "Chromium, to test slides and report", "install it")


CHECKS: list[Callable[[], Iterator[Finding]]] = [
    python,
    packages,
    place,
    torch_pair,
    space,
    data_source,
    other_programs,
]
