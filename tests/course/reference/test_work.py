"""Real jobs on a narrow network: every stage, a kill in the middle, a budget that is too small."""

import dataclasses

import pytest

from course import reference
from course.reference import SweepError, work
from course.reference.keys import still_to_do
from course.reference.measuring import weights_of
from helpers import data, models
from helpers.quantization.affine import QuantizationError
from helpers.training.loop import TrainingLoop
from helpers.training.state import TrainingState
from tests.course.reference.small import small_sweep
from tests.marks import IN_CI

pytestmark = IN_CI


@pytest.fixture
def few(monkeypatch):
    """The sample with fewer images, of which fewer calibrate."""
    monkeypatch.setattr(work.stages, "SCAN_IMAGES", 16)
    monkeypatch.setattr(work.stages, "CALIBRATION_IMAGES", 64)
    cifar = data.load_cifar10("sample")
    counts = {"train_images": 400, "train_labels": 400, "test_images": 200, "test_labels": 200}
    small = dataclasses.replace(
        cifar, **{name: getattr(cifar, name)[:count] for name, count in counts.items()}
    )
    monkeypatch.setattr(work.data, "load_cifar10", lambda source: small)
    monkeypatch.setattr("course.reference.measuring.load_cifar10", lambda source: small)


def test_every_stage_leaves_its_network_and_its_row(tmp_path, few):
    sweep = small_sweep(tmp_path)
    for job in sweep.jobs.values():
        work.do(job, sweep)
    rows = reference.load(sweep.results).set_index("name")
    assert list(rows.index) == list(sweep.jobs)
    assert (rows.status == "measured").all() and (rows.images == 200).all()
    for job in sweep.jobs.values():
        path, row = sweep.network(job), rows.loc[job.name]
        assert (row.file_bytes, row.weights) == (path.stat().st_size, weights_of(path))
        if job.stage != "dense":
            assert (
                row.command
                == models.read_header(path)[1]["provenance"]["command"]
                == sweep.command(job)
            )
            assert row.accuracy == models.read_header(path)[1]["metrics"]["test_accuracy"]
    assert (
        rows.params["cut"]
        == rows.params["tuned"]
        == pytest.approx(0.7 * rows.params["dense"], rel=0.02)
    )
    assert rows.weights["cut"] != rows.weights["tuned"]
    assert rows.params["int8"] == rows.params["dense"] and rows.macs["int8"] == rows.macs["dense"]
    assert list(rows.weight_bits[["dense", "int8", "tiny"]]) == ["32", "8", "mixed"]
    assert rows.file_bytes["tiny"] <= sweep.jobs["tiny"].settings["file_bytes"]
    assert rows.coded_bytes["int8"] < rows.file_bytes["int8"]
    assert still_to_do(sweep.needed([]), sweep, reference.load(sweep.results)) == []
    assert not list(tmp_path.rglob("*.state")) and not list(tmp_path.rglob("*.part"))


def test_a_killed_job_goes_on_from_its_last_finished_epoch(tmp_path, few, monkeypatch):
    sweep = small_sweep(tmp_path)
    for name in ("dense", "cut"):
        work.do(sweep.jobs[name], sweep)
    epochs, finish, run_epoch = [], TrainingState.finish_epoch, TrainingLoop.run_epoch

    def die_after_the_first(self, row):
        finish(self, row)
        if len(self.history) == 1 and len(epochs) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(TrainingState, "finish_epoch", die_after_the_first)
    monkeypatch.setattr(
        TrainingLoop, "run_epoch", lambda *words: epochs.append(words[1]) or run_epoch(*words)
    )
    with pytest.raises(KeyboardInterrupt):
        work.do(sweep.jobs["tuned"], sweep)
    assert not sweep.network(sweep.jobs["tuned"]).exists()
    work.do(sweep.jobs["tuned"], sweep)
    assert epochs == [0, 1]
    assert reference.load(sweep.results).set_index("name").status["tuned"] == "measured"


def test_a_network_whose_row_was_lost_is_measured_and_not_made_again(tmp_path, few, monkeypatch):
    sweep = small_sweep(tmp_path)
    work.do(sweep.jobs["int8"], sweep)
    before = reference.load(sweep.results)
    sweep.results.unlink()
    monkeypatch.setattr(work, "make", lambda *words: pytest.fail("made again"))
    work.do(sweep.jobs["int8"], sweep)
    assert reference.load(sweep.results).equals(before)


def test_what_cannot_be_done_is_refused_with_the_reason(tmp_path, few, monkeypatch):
    sweep = small_sweep(tmp_path, file_bytes=20_000)
    whole = dataclasses.replace(sweep, data="auto")
    for name, of, error, complaint in (
        ("tiny", sweep, QuantizationError, "too few"),
        ("tuned", sweep, SweepError, "tuned needs cut, dense, which are not there"),
        ("int8", whole, SweepError, "needs all of CIFAR-10; fetch it: python -m course data"),
    ):
        with pytest.raises(error, match=complaint):
            work.do(sweep.jobs[name], of)
    assert reference.load(sweep.results).empty
    monkeypatch.setattr(work, "do_alone", lambda job, sweep: work.do(job, sweep))
    with pytest.raises(SweepError, match="int8 is being done by another process"):
        work.do(sweep.jobs["int8"], sweep)
