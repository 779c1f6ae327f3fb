"""Slips in a sweep's file: each is told, with the place and the remedy, before anything runs."""

import pytest

from course.reference import SweepError, read
from course.reference.settings import KINDS, SETTINGS
from tests.course.reference.small import TEXT


def refused(folder, text, complaint):
    path = folder / "wrong.toml"
    path.write_text(text)
    with pytest.raises(SweepError, match=rf"wrong\.toml.*{complaint}"):
        read(str(path))


def small(folder, more=""):
    return TEXT.format(folder=folder.as_posix(), bytes=140_000) + more


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ('stage = "pruned", ratio = 1.5', "ratio is 1.5; expected 0 <= ratio < 1"),
        ('stage = "pruned", ratio = 0.5, target_macs = 0.5', "ratio and target_macs both say how much goes; keep one"),
        ('stage = "pruned", target_params = 0', "target_params is 0; give a number above 0"),
        ('stage = "pruned", round_to = 0', "round_to is 0; expected a whole number of 1 or more"),
        ('stage = "pruned", importance = "l3"', "importance is 'l3'; choose one of l1, l2"),
        ('stage = "pruned", allocation = "sensitivity"', "allocation is 'sensitivity'; choose one of uniform, global"),
        ('stage = "pruned", seed = "x"', "seed is 'x'; give a whole number"),
        ('stage = "pruned", teacher = "dense"', "a network of the stage pruned is not trained; remove the teacher"),
        ('stage = "int8", per_channel = 0', "per_channel is 0; give true or false"),
        ('stage = "int8", file_bytes = 0', "file_bytes is 0; give a number above 0"),
        ('stage = "int8", layer_bits = {a = "4"}', "layer_bits is .*; give a table of whole numbers"),
        ('stage = "int8", ship = "no"', "ship is 'no'; give true or false"),
        ('stage = "qat", distill = 0, teacher = "dense"', "distillation needs both a teacher and distill > 0"),
        ('stage = "fine-tuned", lr = true', "lr is True; give a number"),
        ('stage = "fine-tuned", image_sizes = [32.5]', r"image_sizes is \[32.5\]; give a list of whole numbers"),
        ('stage = "int8", from = ["dense"]', r"from is \['dense'\]; give text in quotes"),
        ('stage = ["int8"]', r"stage is \['int8'\]; choose one of"),
        ('stage = "int8", from = "later"', "'later' is no job above this one"),
        ('stage = "int8", epochs = 3', "'epochs' is no setting of the stage int8"),
    ],
)
def test_a_wrong_value_of_a_job_is_named_with_the_remedy(tmp_path, settings, complaint):
    start = "" if "from" in settings else ', from = "dense"'
    refused(tmp_path, small(tmp_path, f"x = {{{settings}{start}}}\n"), f"job x: {complaint}")


BASELINE = '\n[jobs]\nbaseline = {stage = "dense"}\n'


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ("[defaults.finetuned]\nepochs = 3", r"\[defaults.finetuned\]: there is no such stage; choose one of dense"),
        ("[defaults.pruned]\nepochs = 3", r"\[defaults.pruned\]: 'epochs' is no setting of the stage pruned"),
        ("[defaults.int8]\nweight_bits = 40", r"\[defaults.int8\]: .*40"),
        ("[defaults]\ndense = 3", r"\[defaults.dense\]: 3 is no table"),
        ("default = 3", "'default' is no setting of a sweep; there are checkpoints, data, defaults"),
        ("jobs = 3", "jobs is 3; give a table"),
        ("defaults = 3", "defaults is 3; give a table"),
        ("jobs = {a = 3}", "job a: 3 is no table"),
        ("work = 3", "work is 3; give text"),
    ],
)
def test_a_wrong_key_and_defaults_that_no_job_needs_are_named_with_the_remedy(tmp_path, lines, complaint):
    top = small(tmp_path).split("[defaults.fine-tuned]")[0]
    top = "\n".join(known for known in top.splitlines() if not known.startswith(lines.split()[0]))
    refused(tmp_path, f"{top}\n{lines}{'' if lines.startswith('jobs') else BASELINE}", complaint)


def test_the_kind_of_every_setting_can_be_checked():
    assert all(kind in KINDS for settings in SETTINGS.values() for kind in settings.values())
