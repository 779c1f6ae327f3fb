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


def refused_twice(job, sweep, complaint):
    for _ in range(2):
        with pytest.raises(SweepError, match=complaint):
            work.do(job, sweep)
        assert not sweep.network(job).exists() and reference.load(sweep.results).empty


def test_a_file_above_its_budget_or_with_other_weights_than_those_measured_is_refused_every_time(sweep, monkeypatch):
    job, hashes = sweep.jobs["int8"], iter(range(100))
    small = dataclasses.replace(job, settings=job.settings | {"file_bytes": 10_000})
    refused_twice(small, sweep, r"int8: the file has \d+ bytes, more than its file_bytes = 10000; allow more")
    with monkeypatch.context() as patched:
        patched.setattr(work.measuring, "weights_of", lambda path: next(hashes))
        refused_twice(job, sweep, "differs from the network that was measured")
    work.do(job, sweep)
    assert reference.load(sweep.results).name.to_list() == ["int8"]
    assert not list(sweep.checkpoints.glob("*.part"))
