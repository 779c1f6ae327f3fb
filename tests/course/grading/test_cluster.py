import logging
import secrets
import sys
import warnings

import pytest

from course.grading import answers, runner
from course.grading.runner import ClusterError, hands
from tests.course.grading.conftest import points_of

distributed = pytest.importorskip("distributed")


@pytest.fixture
def address():
    """A scheduler with one worker that has one thread, all in this process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of distributed, about ports that other tests hold
        local = distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, protocol="tcp://", host="127.0.0.1",
            dashboard_address=":0", silence_logs=logging.CRITICAL,
        )  # fmt: skip
        with local:
            yield local.scheduler_address


def _version():
    return "1"


def test_without_a_scheduler_threads_do_the_work():
    with hands(3, None, _version) as (executor, at_a_time):
        assert at_a_time == 3 and executor.submit(len, "ab").result() == 2


def test_a_cluster_does_the_work(address):
    with hands(None, address, _version) as (executor, at_a_time):
        assert at_a_time == 1 and executor.submit(len, "ab").result(timeout=30) == 2


def test_a_missing_package_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ClusterError, match="pip install -e"), hands(None, "tcp://127.0.0.1:1", _version):
        pass


@pytest.mark.parametrize("scheduler", ["tcp://127.0.0.1:1", "no address"])
def test_a_dead_address_is_named(scheduler, monkeypatch):
    monkeypatch.setattr(runner, "SECONDS_TO_CONNECT", 1)
    with pytest.raises(ClusterError, match=f"{scheduler}.*dask scheduler"), hands(None, scheduler, _version):
        pass


def test_a_cluster_of_another_version_is_refused(address):
    with pytest.raises(ClusterError, match="another version"), hands(None, address, secrets.token_hex):
        pass


def test_a_worker_without_the_course_is_refused(address):
    def fails():
        raise ModuleNotFoundError("No module named 'helpers'")

    with pytest.raises(ClusterError, match=r"No module named 'helpers'.*install it there"), hands(None, address, fails):
        pass


def test_a_scheduler_without_workers_is_refused(address):
    with distributed.Client(address, set_as_default=False) as client:
        client.retire_workers(list(client.nthreads()))
    with pytest.raises(ClusterError, match="dask worker"), hands(None, address, _version):
        pass


@pytest.mark.box
@pytest.mark.slow
@pytest.mark.ci
def test_a_class_is_graded_on_a_cluster(address, room, a1, hand_in):
    for student, sources in {"ada": answers.solution_cells(a1), "ben": {}}.items():
        hand_in(student, sources)
    assert runner.run(room, a1, scheduler=address) == {"graded": 2, "kept": 0}
    assert points_of(room, "ada", "ben") == {"ada": 88, "ben": 0}
    assert runner.run(room, a1) == {"graded": 0, "kept": 2}  # the same marks count, wherever they were made
