import shutil
import sys
from functools import cache

import nbformat
import pytest
from filelock import FileLock

from course.grading import course, judge, machine, release
from course.grading.answers import fill
from course.grading.classroom import Classroom
from course.grading.intake import Submission

# Grading needs what Windows has not, and some of these files import it.
collect_ignore_glob = ["test_*.py"] if sys.platform == "win32" else []


def pytest_collection_modifyitems(items):
    reason = machine.obstacle()
    for item in items:
        if reason and item.get_closest_marker("box"):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def a1():
    return course.load("a1")


@pytest.fixture(scope="session")
def released(tmp_path_factory, request):
    """From the name of an assignment to a class to which it was released.

    Not to be written to: see `room`.
    """
    parallel = hasattr(
        request.config, "workerinput"
    )  # then all processes share what one of them has made
    shared = tmp_path_factory.getbasetemp().parent if parallel else tmp_path_factory.getbasetemp()

    @cache
    def class_of(name):
        with FileLock(shared / f"{name}.lock"):
            if not (shared / f"{name}.released").exists():
                release.release(Classroom.open(shared / name), course.load(name))
                (shared / f"{name}.released").touch()
        return Classroom.open(shared / name)

    return class_of


@pytest.fixture
def room(released, tmp_path):
    """A class of its own for one test, with a1 released."""
    shutil.copytree(released("a1").folder, tmp_path / "class")
    return Classroom.open(tmp_path / "class")


@pytest.fixture(scope="session")
def skeleton(released):
    return skeleton_of(released, "a1")


def skeleton_of(released, name):
    return nbformat.read(released(name).folder / "released" / name / f"{name}.ipynb", as_version=4)


@pytest.fixture
def hand_in(room, skeleton):
    """Put a notebook made of the release and some sources among the submissions; returns its
    folder.
    """

    def put(student, sources):
        folder = room.submission(student, "a1")
        folder.mkdir(parents=True, exist_ok=True)
        nbformat.write(fill(skeleton, sources), folder / "a1.ipynb")
        return folder

    return put


@pytest.fixture(scope="session")
def sheets(a1):
    return judge.prepare(a1, "secret of the tests")


@pytest.fixture
def grade(a1, skeleton, sheets):
    """Grade a notebook made of the release and some sources; returns the result."""
    return lambda sources, limits=None, boxed=True: judge.grade(
        a1, [Submission(fill(skeleton, sources))], sheets, limits, boxed
    )[0]


def total(result):
    return sum(row["points"] for row in result["items"].values())


def points_of(room, *students):
    return {student: total(room.result("a1", student)) for student in students}
