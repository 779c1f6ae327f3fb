"""A class graded by the workers of a Dask cluster has the marks that this machine gives."""

import os
import shutil
import signal

import pytest

from course.grading import answers, runner
from course.grading.classroom import Classroom
from tests.course.grading.conftest import total

distributed = pytest.importorskip("distributed", reason="Dask is an extra: cluster")
pytestmark = [pytest.mark.box, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster():
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0"
    ) as made:
        yield made


def marks_of(room):
    results = (room.result("a1", student) for student in room.students("a1"))
    return {result["student"]: result["items"] for result in results if result}


def test_the_marks_are_those_of_this_machine_and_a_lost_worker_costs_nothing(
    room, a1, hand_in, cluster, monkeypatch, tmp_path
):
    solved = answers.solution_cells(a1)
    for student, lost in {"ada": {}, "ben": {"bn_affine_solution": ""}, "cy": {}}.items():
        hand_in(student, solved | lost)
    here = Classroom.open(shutil.copytree(room.folder, tmp_path / "here"))
    runner.run(here, a1)
    keep, killed = runner._keep, []

    def keep_and_kill(*inputs):
        if not killed:
            with distributed.Client(cluster) as client:
                killed.append(next(iter(client.run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)
        keep(*inputs)

    monkeypatch.setattr(runner, "_keep", keep_and_kill)
    address = cluster.scheduler_address
    assert runner.run(room, a1, scheduler=address) == {"graded": 3, "kept": 0}
    assert killed and marks_of(room) == marks_of(here)
    assert total(room.result("a1", "ada")) == 88 > total(room.result("a1", "ben"))


def test_workers_of_another_version_are_refused(room, a1, hand_in, cluster, monkeypatch):
    hand_in("ada", {})
    monkeypatch.setattr(runner, "version", lambda name: "another")
    with pytest.raises(runner.machine.BoxError, match="another version of the course"):
        runner.run(room, a1, scheduler=cluster.scheduler_address)
