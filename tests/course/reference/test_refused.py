"""A network that fails a check is not there: neither its file nor its row, however often the job is run."""

import dataclasses

import pytest

from course import reference
from course.reference import SweepError, work
from helpers import models
from tests.course.reference.small import small_sweep


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """A sweep in which making and measuring a network take no time."""
    made, found = small_sweep(tmp_path), {"accuracy": 0.5, "low": 0.4, "high": 0.6, "images": 9}
    baseline = models.load(made.network(made.jobs["dense"]))
    monkeypatch.setattr(work.stages, "make", lambda *words: baseline)
    monkeypatch.setattr(work.measuring, "evaluate", lambda *words: found | {"validation_accuracy": 0.5})
    return made


def refused(job, sweep, complaint):
    with pytest.raises(SweepError, match=complaint):
        work.do(job, sweep)
    assert not sweep.network(job).exists()
    assert reference.load(sweep.results).empty


def test_a_file_above_its_budget_is_refused_every_time(sweep):
    job = sweep.jobs["int8"]
    job = dataclasses.replace(job, settings=job.settings | {"file_bytes": 10_000})
    for _ in range(2):
        refused(job, sweep, r"int8: the file has \d+ bytes, more than its file_bytes = 10000; allow more")


def test_a_file_with_other_weights_than_those_measured_is_refused_every_time(sweep, monkeypatch):
    hashes = iter(range(100))
    with monkeypatch.context() as patched:
        patched.setattr(work.measuring, "weights_of", lambda path: next(hashes))
        for _ in range(2):
            refused(sweep.jobs["int8"], sweep, "differs from the network that was measured")
    work.do(sweep.jobs["int8"], sweep)
    assert reference.load(sweep.results).name.to_list() == ["int8"]
    assert not list(sweep.checkpoints.glob("*.part"))
