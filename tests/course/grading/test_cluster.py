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


def version():
    return "1"


def fails():
    raise ModuleNotFoundError("No module named 'helpers'")


def test_threads_do_the_work_or_a_cluster(address):
    for workers, scheduler, at_a_time in ((3, None, 3), (None, address, 1)):
        with hands(workers, scheduler, version) as (executor, found):
            assert found == at_a_time and executor.submit(len, "ab").result(timeout=30) == 2


def refused(scheduler, says, version=version):
    with pytest.raises(ClusterError, match=says), hands(None, scheduler, version):
        pass


def test_what_is_missing_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setattr(runner, "SECONDS_TO_CONNECT", 1)
    for scheduler in ("tcp://127.0.0.1:1", "no address"):
        refused(scheduler, f"{scheduler}.*dask scheduler")
    monkeypatch.setitem(sys.modules, "distributed", None)
    refused("tcp://127.0.0.1:1", "pip install -e")


def test_a_cluster_that_would_grade_otherwise_or_not_at_all_is_refused(address):
    refused(address, "another version", secrets.token_hex)
    refused(address, r"No module named 'helpers'.*install it there", fails)
    with distributed.Client(address, set_as_default=False) as client:
        client.retire_workers(list(client.nthreads()))
    refused(address, "dask worker")


@pytest.mark.box
@pytest.mark.slow
@pytest.mark.ci
def test_a_class_is_graded_on_a_cluster(address, room, a1, hand_in):
    for student, sources in {"ada": answers.solution_cells(a1), "ben": {}}.items():
        hand_in(student, sources)
    assert runner.run(room, a1, scheduler=address) == {"graded": 2, "kept": 0}
    assert points_of(room, "ada", "ben") == {"ada": 88, "ben": 0}
    assert runner.run(room, a1) == {"graded": 0, "kept": 2}  # the same marks count, wherever they were made
