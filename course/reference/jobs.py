"""The jobs of a sweep, read from a TOML file and checked before anything runs.

data = "local"                                    # where CIFAR-10 comes from
results = "data/results/results.csv"              # one row per job
checkpoints = "data/checkpoints"                  # the networks of jobs with ship = true
work = "build/sweeps/reference"                   # all other networks, unfinished states, logs

[defaults.fine-tuned]                             # settings of all jobs of a stage
epochs = 20

[jobs]
dense     = {stage = "dense", epochs = 200, ship = true}
half      = {stage = "fine-tuned", from = "dense", teacher = "dense", target_params = 0.5}
half-int8 = {stage = "int8", from = "half"}
"""

import shlex
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course.reference import settings as rules
from course.reference.settings import SETTINGS, SweepError
from helpers.data import REPOSITORY, SOURCES

FOLDER = Path(__file__).parent
TRAINING, DRY = {"epochs", "image_sizes"}, {"epochs": 1, "image_sizes": [32]}
PLACES = ("data", "results", "checkpoints", "work")


@dataclass(frozen=True)
class Job:
    """One network to make."""

    name: str  # of the network, its file and its row
    stage: str  # dense, pruned, fine-tuned, int8 or qat
    source: str | None  # the job whose network this one starts from; None for dense
    teacher: str | None  # the job whose network this one learns from, if any
    settings: dict[str, Any] = field(
        hash=False
    )  # everything else that decides how the network comes out
    ship: bool  # whether the network goes to the checkpoints that come with the course

    @property
    def inputs(self) -> list[str]:
        """The jobs whose networks this one needs."""
        return [name for name in (self.source, self.teacher) if name]

    @property
    def cuts(self) -> bool:
        """Whether channels or blocks go before anything else happens."""
        by_group = isinstance(self.settings.get("allocation"), dict)
        return (
            self.stage == "pruned"
            or by_group
            or any(name in self.settings for name in (*rules.AMOUNTS, "without"))
        )


@dataclass(frozen=True)
class Sweep:
    """All jobs, in an order in which each comes after those that it needs."""

    name: str
    data: str
    results: Path
    checkpoints: Path
    work: Path
    jobs: dict[str, Job]
    dry: Path | None = None

    def network(self, job: Job) -> Path:
        """The file of a job's network."""
        return (self.checkpoints if job.ship else self.work) / f"{job.name}.safetensors"

    def unfinished(self, job: Job, key: str, ending: str) -> Path:
        """A small file of a job under way.

        It lies beside the results: committed, it lets another machine go on.
        """
        return self.results.parent / "unfinished" / f"{job.name}-{key}.{ending}"

    def command(self, job: Job) -> str:
        """The command that does this job, and before it what it needs."""
        dry = ["--dry", str(self.dry)] if self.dry else []
        return shlex.join(["python", "-m", "course", "sweep", self.name, job.name, *dry])

    def needed(self, names: list[str]) -> list[Job]:
        """The named jobs and whatever they need; all jobs when none is named."""
        wanted = set(names or self.jobs)
        if unknown := wanted - self.jobs.keys():
            raise SweepError(
                f"{self.name} has no job {sorted(unknown)[0]!r}; it has {', '.join(self.jobs)}"
            )
        for job in reversed(self.jobs.values()):
            if job.name in wanted:
                wanted.update(job.inputs)
        return [job for job in self.jobs.values() if job.name in wanted]


def read(name: str, dry: Path | None = None) -> Sweep:
    """Read a sweep by its name (a file beside this one) or by its path.

    With `dry`, a folder, it is a dry run, on the sample, with trainings of one epoch: it shows that
    all works, no more.
    """
    path = FOLDER / f"{name}.toml" if (FOLDER / f"{name}.toml").exists() else Path(name)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        known = ", ".join(sorted(p.stem for p in FOLDER.glob("*.toml")))
        raise SweepError(
            f"{name!r} is neither a sweep of the course ({known}) nor a file that can be read"
        ) from error
    except ValueError as error:  # or no text at all
        raise SweepError(f"{path} is not TOML: {error}") from error
    if dry is not None:
        dry = dry.resolve()  # places of a sweep are in the repository, this one where you stand
        places = {"results": dry / "results.csv", "checkpoints": dry / "checkpoints", "work": dry}
        content |= {"data": "sample"} | {key: str(place) for key, place in places.items()}
    missing = [key for key in (*PLACES, "jobs") if key not in content]
    if missing or content["data"] not in SOURCES:
        what = (
            f"lacks {', '.join(missing)}" if missing else f"asks for the data {content['data']!r}"
        )
        raise SweepError(
            f"{path} {what}; see course/reference/jobs.py for the form; data is one of"
            f" {', '.join(SOURCES)}"
        )
    rules.check_kinds(path.name, content, rules.FILE, "a sweep")
    rules.check_defaults(path.name, content.get("defaults", {}))
    places = {key: REPOSITORY / content[key] for key in PLACES[1:]}
    jobs: dict[str, Job] = {}
    for job_name, stated in content["jobs"].items():
        jobs[job_name] = make_job(path, job_name, stated, content.get("defaults", {}), jobs)
        if dry is not None and SETTINGS[jobs[job_name].stage].keys() >= TRAINING:
            jobs[job_name].settings.update(DRY)
    return Sweep(name, content["data"], **places, jobs=jobs, dry=dry)


def make_job(
    path: Path, name: str, stated: dict[str, Any], defaults: dict[str, Any], before: dict[str, Job]
) -> Job:
    """Check one line of a sweep; `before` are the lines above it."""
    where = f"{path.name}, job {name}"
    rules.check_table(where, stated)
    stage = stated.get("stage")
    if not isinstance(stage, str) or stage not in SETTINGS:
        raise SweepError(f"{where}: stage is {stage!r}; choose one of {', '.join(SETTINGS)}")
    settings = defaults.get(stage, {}) | stated
    rules.check_kinds(
        where, settings, {"stage": str} | rules.OF_ANY_STAGE | SETTINGS[stage], f"the stage {stage}"
    )
    rules.check_values(where, stage, settings)
    source, teacher, ship = (
        settings.pop("from", None),
        settings.pop("teacher", None),
        settings.pop("ship", False),
    )
    settings.pop("stage")
    job = Job(name, stage, source, teacher, settings, ship)
    check_inputs(where, job, before)
    return job


def check_inputs(where: str, job: Job, before: dict[str, Job]) -> None:
    """A job starts from a job above it, and learns from one if it learns from another network at
    all.
    """
    if (job.source is None) != (job.stage == "dense"):
        raise SweepError(
            f"{where}: from is {job.source!r}; a dense job has none, every other names the job that"
            " it starts from"
        )
    for name in (job.source, job.teacher):
        if name is not None and name not in before:
            raise SweepError(
                f"{where}: {name!r} is not a job above this one; there are"
                f" {', '.join(before) or 'none'}"
            )
    if job.teacher is not None and job.stage in ("pruned", "int8"):
        raise SweepError(
            f"{where}: a network of the stage {job.stage} is not trained; remove the teacher"
        )
    learns, taught = rules.config(job.settings).distill > 0, job.teacher is not None
    if learns != taught and not (
        learns and job.stage == "qat"
    ):  # with rounding, a network may be its own teacher
        raise SweepError(
            f"{where}: distillation needs both a teacher and distill > 0; only one of them was"
            " given"
        )
