import dataclasses

import torch

from course.reference.keys import is_done, still_to_do
from course.reference.measuring import weights_of
from helpers import models
from tests.course.reference.small import rows_of, small_sweep


def with_job(sweep, name, **changes):
    """The same sweep with one job changed."""
    job = dataclasses.replace(sweep.jobs[name], settings=sweep.jobs[name].settings | changes)
    return dataclasses.replace(sweep, jobs=sweep.jobs | {name: job})


def to_do(sweep, rows, *names):
    return [job.name for job in still_to_do(sweep.needed(names), sweep, rows)]


def test_weights_are_told_apart_by_structure_and_tensors_but_not_by_what_a_file_says(tmp_path):
    torch.manual_seed(0)
    model = models.mobilenet_v2(width_mult=0.1)
    first = weights_of(models.save(model, tmp_path / "a"))
    assert weights_of(models.save(model, tmp_path / "b", note="other")) == first
    with torch.no_grad():
        model.classifier[1].bias[0] += 1e-3
    assert weights_of(models.save(model, tmp_path / "c")) != first


def test_a_done_job_is_not_done_again_until_its_settings_change(tmp_path):
    sweep = small_sweep(tmp_path)
    rows = rows_of(sweep, "dense", "cut", "tuned", "int8", "tiny")
    assert to_do(sweep, rows) == []
    for changed in (with_job(sweep, "tuned", lr=0.1), with_job(sweep, "cut", target_params=0.5)):
        assert to_do(changed, rows) == ["cut", "tuned"] and to_do(changed, rows, "int8") == []


def test_another_baseline_makes_everything_new_but_not_another_way_to_train_it(tmp_path):
    sweep = small_sweep(tmp_path)
    rows = rows_of(sweep, "dense", "cut", "tuned", "int8")
    assert is_done(with_job(sweep, "dense", epochs=300).jobs["dense"], sweep, rows)
    torch.manual_seed(1)
    models.save(models.mobilenet_v2(width_mult=0.1).eval(), sweep.network(sweep.jobs["dense"]))
    assert to_do(sweep, rows) == list(sweep.jobs)
    rows = rows_of(sweep, "dense")
    sweep.network(sweep.jobs["dense"]).unlink()
    assert not is_done(sweep.jobs["dense"], sweep, rows)
