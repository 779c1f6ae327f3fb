import pytest

from course.reference import SweepError, read
from course.reference.jobs import FOLDER
from helpers import metrics, models
from tests.course.reference.small import small_sweep


@pytest.mark.parametrize("name", [path.stem for path in FOLDER.glob("*.toml")])
def test_the_sweeps_of_the_course_can_be_read(name):
    jobs = read(name).jobs
    assert "dense" in {job.stage for job in jobs.values()}
    assert all(job.source in jobs for job in jobs.values() if job.stage != "dense")


def test_the_reference_is_a_family_of_twelve_made_from_one_network_in_widths_that_engines_like():
    jobs, whole = read("reference").jobs, metrics.count_parameters(models.mobilenet_v2())
    kinds = {"half": ("int8",), "fifth": ("int8", "mixed"), "tenth": ("int8", "mixed"), "fast": ("int8",)}
    quantized = {f"{kind}-{form}" for kind, forms in kinds.items() for form in forms}
    assert set(jobs) == {"dense", "dense-int8", *kinds, *quantized}
    for name, share in (("half", 0.5), ("fifth", 0.2), ("tenth", 0.1)):
        assert jobs[name].settings["target_params"] / whole == pytest.approx(share, abs=1e-6)
    for name in kinds:
        assert jobs[name].cuts and jobs[name].settings["round_to"] == 16 and jobs[name].teacher == "dense"
    assert all(job.recipe().residual == "separate" for job in jobs.values() if job.stage in ("int8", "qat"))


def test_a_dry_run_trains_little_on_the_sample_and_writes_into_its_folder(tmp_path):
    sweep = read("reference", tmp_path)
    assert sweep.data == "sample" and sweep.results.parent == sweep.checkpoints.parent == sweep.work == tmp_path
    assert all(job.config().epochs == 1 for job in sweep.jobs.values() if job.stage in ("dense", "fine-tuned", "qat"))


def test_a_stage_has_defaults_a_job_its_own_settings_and_what_it_needs_comes_before_it(tmp_path):
    sweep = small_sweep(tmp_path)
    tuned, dense = (sweep.jobs[name].config() for name in ("tuned", "dense"))
    assert (tuned.image_sizes, tuned.distill, dense.distill) == ((8,), 0.5, 0)
    assert [job.name for job in sweep.needed(["tuned"])] == ["dense", "cut", "tuned"]
    assert [job.name for job in sweep.needed([])] == list(sweep.jobs)
    with pytest.raises(SweepError, match="no job 'nothing'"):
        sweep.needed(["nothing"])
