"""The files of sweeps: what they say, which slips are told before anything runs, and when a job is
done.
"""

import dataclasses

import pytest
import torch

from course.reference import SweepError, read
from course.reference.jobs import FOLDER, Job
from course.reference.keys import is_done, still_to_do
from course.reference.measuring import weights_of
from course.reference.settings import KINDS, SETTINGS, config, recipe
from helpers import models
from tests.course.reference.small import TEXT, rows_of, small_sweep


@pytest.mark.parametrize("name", [path.stem for path in FOLDER.glob("*.toml")])
def test_the_sweeps_of_the_course_can_be_read(name):
    jobs = read(name).jobs
    assert all(
        kind in KINDS for settings in SETTINGS.values() for kind in settings.values()
    )  # and so be checked
    assert "dense" in {job.stage for job in jobs.values()}
    assert all(job.source in jobs for job in jobs.values() if job.stage != "dense")
    assert Job(
        "a", "fine-tuned", "b", None, {"allocation": {"group": 0.5}}, ship=False
    ).cuts  # no amount beside it


def test_the_reference_is_a_family_of_thirteen_made_from_one_network_in_widths_that_engines_like():
    jobs = read("reference").jobs
    kinds = {
        "half": ("int8", "mixed"),
        "fifth": ("int8", "mixed"),
        "tenth": ("int8", "mixed"),
        "fast": ("int8",),
    }
    quantized = {f"{kind}-{form}" for kind, forms in kinds.items() for form in forms}
    assert set(jobs) == {"dense", "dense-int8", *kinds, *quantized}
    for name in kinds:
        assert (
            jobs[name].cuts
            and jobs[name].settings["round_to"] == 16
            and jobs[name].teacher == "dense"
        )
    assert all(
        recipe(job.settings).residual == "separate"
        for job in jobs.values()
        if job.stage in ("int8", "qat")
    )


def test_a_dry_run_trains_little_on_the_sample_and_writes_into_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path.parent)
    sweep = read("reference", tmp_path.relative_to(tmp_path.parent))
    assert (
        sweep.command(sweep.jobs["half"])
        == f"python -m course sweep reference half --dry {tmp_path}"
    )
    assert (
        sweep.data == "sample"
        and sweep.results.parent == sweep.checkpoints.parent == sweep.work == tmp_path
    )
    trained = [job for job in sweep.jobs.values() if job.stage in ("dense", "fine-tuned", "qat")]
    assert all(config(job.settings).epochs == 1 for job in trained)


def test_a_stage_has_defaults_a_job_its_own_settings_and_what_it_needs_comes_before_it(tmp_path):
    sweep = small_sweep(tmp_path)
    tuned, dense = (config(sweep.jobs[name].settings) for name in ("tuned", "dense"))
    assert (tuned.image_sizes, tuned.distill, dense.distill) == ((8,), 0.5, 0)
    assert [job.name for job in sweep.needed(["tuned"])] == ["dense", "cut", "tuned"]
    assert [job.name for job in sweep.needed([])] == list(sweep.jobs)
    spaced = dataclasses.replace(sweep, name="my own.toml")
    assert spaced.command(sweep.jobs["cut"]) == "python -m course sweep 'my own.toml' cut"
    with pytest.raises(SweepError, match="no job 'nothing'"):
        sweep.needed(["nothing"])


def with_job(sweep, name, **changes):
    """The same sweep with one job changed."""
    job = dataclasses.replace(sweep.jobs[name], settings=sweep.jobs[name].settings | changes)
    return dataclasses.replace(sweep, jobs=sweep.jobs | {name: job})


def to_do(sweep, rows, *names):
    return [job.name for job in still_to_do(sweep.needed(names), sweep, rows)]


def test_weights_are_told_apart_by_structure_and_tensors_but_not_by_what_a_file_says(tmp_path):
    model = models.mobilenet_v2(width_mult=0.1)
    first = weights_of(models.save(model, tmp_path / "a"))
    assert weights_of(models.save(model, tmp_path / "b", note="other")) == first
    model.classifier[1].bias.data[0] += 1e-3
    assert weights_of(models.save(model, tmp_path / "c")) != first


def test_a_done_job_is_not_done_again_until_its_settings_change(tmp_path):
    sweep = small_sweep(tmp_path)
    rows = rows_of(sweep, "dense", "cut", "tuned", "int8", "tiny")
    assert to_do(sweep, rows) == []
    for changed in (with_job(sweep, "tuned", lr=0.1), with_job(sweep, "cut", target_params=0.5)):
        assert to_do(changed, rows) == ["cut", "tuned"] and to_do(changed, rows, "int8") == []
    taught = dataclasses.replace(sweep.jobs["tuned"], source="dense", teacher="cut")
    assert not is_done(taught, sweep, rows)  # the two networks have changed places


def test_another_baseline_makes_everything_new_but_not_another_way_to_train_it(tmp_path):
    sweep = small_sweep(tmp_path)
    rows = rows_of(sweep, "dense", "cut", "tuned", "int8")
    assert is_done(with_job(sweep, "dense", epochs=300).jobs["dense"], sweep, rows)
    torch.manual_seed(1)
    models.save(models.mobilenet_v2(width_mult=0.1).eval(), sweep.network(sweep.jobs["dense"]))
    assert to_do(sweep, rows) == list(sweep.jobs)
    rows = rows_of(sweep, "dense", "int8")
    models.save(models.load(sweep.network(sweep.jobs["dense"])), sweep.network(sweep.jobs["int8"]))
    assert to_do(sweep, rows, "int8") == ["int8"]  # whose file is not the one of its row
    sweep.network(sweep.jobs["dense"]).unlink()
    assert not is_done(sweep.jobs["dense"], sweep, rows)


def test_a_file_that_holds_no_text_is_named(tmp_path):
    (tmp_path / "wrong.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SweepError, match=r"wrong\.toml is not TOML: 'utf-8' codec"):
        read(str(tmp_path / "wrong.toml"))


def assert_refused(folder, text, complaint):
    path = folder / "wrong.toml"
    path.write_text(text.format(folder=folder.as_posix(), bytes=140_000))
    with pytest.raises(SweepError, match=rf"wrong\.toml.*{complaint}"):
        read(str(path))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ('stage = "pruned", ratio = 1.5', "ratio is 1.5; expected 0 <= ratio < 1"),
        ('stage = "pruned", target_params = 0.5, tolerance = 3', "tolerance is 3; expected 0 <="),
        ('stage = "pruned", allocation = {a = 1.0}', r"allocation\['a'\] is 1.0; expected 0 <="),
        (
            'stage = "pruned", allocation = {a = 0.5}, target_params = 5',
            "allocation says how much goes from each group, and target_params how much in all",
        ),
        (
            'stage = "pruned", ratio = 0.5, target_macs = 0.5',
            "ratio and target_macs both say how much goes; keep one",
        ),
        ('stage = "pruned", target_params = 0', "target_params is 0; give a number above 0"),
        ('stage = "pruned", round_to = 0', "round_to is 0; expected a whole number of 1 or more"),
        ('stage = "pruned", importance = "l3"', "importance is 'l3'; choose one of l1, l2"),
        (
            'stage = "pruned", ratio = 0.5, without = "features.3"',
            "without is 'features.3'; give a list of names",
        ),
        (
            'stage = "pruned", allocation = "sensitivity"',
            "allocation is 'sensitivity'; choose one of uniform, global",
        ),
        ('stage = "pruned", seed = "x"', "seed is 'x'; give a whole number"),
        (
            'stage = "pruned", teacher = "dense"',
            "a network of the stage pruned is not trained; remove the teacher",
        ),
        ('stage = "int8", per_channel = 0', "per_channel is 0; give true or false"),
        ('stage = "int8", file_bytes = 0', "file_bytes is 0; give a number above 0"),
        (
            'stage = "int8", layer_bits = {a = "4"}',
            "layer_bits is .*; give a table of whole numbers",
        ),
        ('stage = "int8", ship = "no"', "ship is 'no'; give true or false"),
        (
            'stage = "qat", distill = 0, teacher = "dense"',
            "distillation needs both a teacher and distill > 0",
        ),
        ('stage = "fine-tuned", lr = true', "lr is True; give a number"),
        (
            'stage = "fine-tuned", image_sizes = [32.5]',
            r"image_sizes is \[32.5\]; give a list of whole numbers",
        ),
        ('stage = "int8", from = ["dense"]', r"from is \['dense'\]; give text in quotes"),
        ('stage = ["int8"]', r"stage is \['int8'\]; choose one of"),
        ('stage = "int8", from = "later"', "'later' is not a job above this one"),
        ('stage = "int8", epochs = 3', "'epochs' is not a setting of the stage int8"),
    ],
)
def test_a_wrong_value_of_a_job_is_named_with_the_remedy(tmp_path, settings, complaint):
    start = "" if "from" in settings else ', from = "dense"'
    settings = (settings + start).replace("{", "{{").replace("}", "}}")
    assert_refused(tmp_path, f"{TEXT}x = {{{{{settings}}}}}\n", f"job x: {complaint}")


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (
            "[defaults.finetuned]\nepochs = 3",
            r"\[defaults.finetuned\]: there is no such stage; choose one of dense",
        ),
        (
            "[defaults.pruned]\nepochs = 3",
            r"\[defaults.pruned\]: 'epochs' is not a setting of the stage pruned",
        ),
        ("[defaults.int8]\nweight_bits = 40", r"\[defaults.int8\]: .*40"),
        ("[defaults]\ndense = 3", r"\[defaults.dense\]: 3 is not a table"),
        (
            "default = 3",
            "'default' is not a setting of a sweep; there are checkpoints, data, defaults",
        ),
        ("jobs = 3", "jobs is 3; give a table"),
        ("defaults = 3", "defaults is 3; give a table"),
        ("jobs = {{a = 3}}", "job a: 3 is not a table"),
        ("work = 3", "work is 3; give text"),
    ],
)
def test_a_wrong_key_and_defaults_that_no_job_needs_are_named_with_the_remedy(
    tmp_path, lines, complaint
):
    top = TEXT.split("[defaults.fine-tuned]")[0]
    top = "\n".join(known for known in top.splitlines() if not known.startswith(lines.split()[0]))
    lines += "" if lines.startswith("jobs") else '\n[jobs]\nbaseline = {{stage = "dense"}}\n'
    assert_refused(tmp_path, f"{top}\n{lines}", complaint)
