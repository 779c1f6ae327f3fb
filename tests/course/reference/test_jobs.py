import pytest

from course.reference import SweepError, read
from course.reference.jobs import FOLDER
from helpers import metrics, models
from tests.course.reference.small import TEXT, small_sweep


@pytest.mark.parametrize("name", [path.stem for path in FOLDER.glob("*.toml")])
def test_the_sweeps_of_the_course_can_be_read(name):
    jobs = read(name).jobs
    assert "dense" in {job.stage for job in jobs.values()}
    assert all(job.source in jobs for job in jobs.values() if job.stage != "dense")


def test_the_reference_has_the_four_ratios_in_both_scopes_with_int8():
    jobs, dense = read("reference").jobs, metrics.count_parameters(models.mobilenet_v2())
    for scope, names in (("hidden", ("25", "50", "70", "80")), ("all", ("25", "50", "70", "85"))):
        kind = "hidden" if scope == "hidden" else "trunk"
        for percent in names:
            cut = jobs[f"{kind}{percent}-pruned"]
            assert cut.settings["scope"] == scope
            left = cut.settings["target_params"] / (1 if cut.source == "baseline" else dense)
            assert left == pytest.approx(1 - int(percent) / 100, abs=1e-6)
            assert jobs[f"{kind}{percent}"].teacher == "baseline"
            assert jobs[f"{kind}{percent}-int8"].source == f"{kind}{percent}"


def test_a_stage_has_defaults_and_a_job_its_own_settings(tmp_path):
    jobs = small_sweep(tmp_path).jobs
    assert jobs["tuned"].config().image_sizes == (8,)
    assert jobs["tuned"].config().distill == 0.5
    assert jobs["baseline"].config().distill == 0
    assert jobs["tuned"].inputs == ["cut", "baseline"]


def test_what_a_job_needs_comes_before_it(tmp_path):
    sweep = small_sweep(tmp_path)
    assert [job.name for job in sweep.needed(["tuned"])] == ["baseline", "cut", "tuned"]
    assert [job.name for job in sweep.needed([])] == list(sweep.jobs)
    with pytest.raises(SweepError, match="no job 'nothing'"):
        sweep.needed(["nothing"])


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('x = {stage = "folded", from = "baseline"}', "job x: stage is 'folded'; choose one of dense"),
        ('x = {stage = "int8"}', "job x: every job but a dense one starts `from` another"),
        ('x = {stage = "int8", from = "later"}', "job x: 'later' is no job above this one"),
        ('x = {stage = "int8", from = "cut", epochs = 3}', "job x: 'epochs' is no setting of the stage int8"),
        ('x = {stage = "int8", from = "cut", weight_bits = 40}', "job x: .*40"),
        ('x = {stage = "fine-tuned", from = "cut"}', "job x: distillation needs both"),
        ("x = {stage = ", "is not TOML"),
    ],
)
def test_a_wrong_line_is_named_with_the_remedy(tmp_path, line, complaint):
    path = tmp_path / "wrong.toml"
    path.write_text(TEXT.format(folder=tmp_path.as_posix(), bytes=1) + line)
    with pytest.raises(SweepError, match=complaint):
        read(str(path))


def test_a_sweep_that_is_not_there_is_named():
    with pytest.raises(SweepError, match=r"'nowhere' is neither a sweep of the course .*reference"):
        read("nowhere")
