"""The jobs of a sweep, read from a TOML file and checked before anything runs.

data = "local"                                    # where CIFAR-10 comes from
results = "data/results/results.csv"              # one row per job
checkpoints = "data/checkpoints"                  # the networks of jobs with ship = true
work = "build/sweeps/reference"                   # all other networks, unfinished states, logs

[defaults.fine-tuned]                             # settings of all jobs of a stage
epochs = 20

[jobs]
baseline = {stage = "dense", epochs = 200, ship = true}
half-cut = {stage = "pruned", from = "baseline", target_params = 0.5}
half     = {stage = "fine-tuned", from = "half-cut", teacher = "baseline"}
"""

import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from helpers.data import REPOSITORY, SOURCES
from helpers.quantization import Recipe
from helpers.training import Config

FOLDER = Path(__file__).parent
PRUNING = {"scope", "ratio", "target_params", "target_macs", "importance", "aggregate", "allocation", "min_width"}
PRUNING |= {"round_to", "reestimate", "seed"}
TRAINING = {f.name for f in fields(Config)}
QUANTIZING = {f.name for f in fields(Recipe)} | {"file_bytes", "seed"}
# What may be set for a job of each stage.
SETTINGS = {
    "dense": TRAINING,
    "pruned": PRUNING,
    "fine-tuned": TRAINING,
    "int8": QUANTIZING,
    "qat": QUANTIZING | TRAINING | {"batchnorm"},
}
PLACES = ("data", "results", "checkpoints", "work")


class SweepError(ValueError):
    """A sweep's file asks for something that cannot be done; names file, job and remedy."""


@dataclass(frozen=True)
class Job:
    """One network to make.

    Attributes:
        name: of the network, its file and its row.
        stage: dense, pruned, fine-tuned, int8 or qat.
        source: the job whose network this one starts from; None for dense.
        teacher: the job whose network this one learns from, if any.
        settings: everything else that decides how the network comes out.
        ship: whether the network goes to the checkpoints that come with the course.
    """

    name: str
    stage: str
    source: str | None
    teacher: str | None
    settings: dict[str, Any] = field(hash=False)
    ship: bool

    @property
    def inputs(self) -> list[str]:
        """The jobs whose networks this one needs."""
        return [name for name in (self.source, self.teacher) if name]

    @property
    def seed(self) -> int:
        """Of whatever is random in the job."""
        return self.settings.get("seed", 0)

    def config(self) -> Config:
        """How to train."""
        chosen = {name: value for name, value in self.settings.items() if name in TRAINING}
        sizes = {"image_sizes": tuple(chosen["image_sizes"])} if "image_sizes" in chosen else {}
        return Config(**chosen | sizes)

    def recipe(self) -> Recipe:
        """How to quantize."""
        names = {f.name for f in fields(Recipe)}
        return Recipe(**{name: value for name, value in self.settings.items() if name in names})


@dataclass(frozen=True)
class Sweep:
    """All jobs, in an order in which each comes after those that it needs."""

    name: str
    data: str
    results: Path
    checkpoints: Path
    work: Path
    jobs: dict[str, Job]

    def network(self, job: Job) -> Path:
        """The file of a job's network."""
        return (self.checkpoints if job.ship else self.work) / f"{job.name}.safetensors"

    def command(self, job: Job) -> str:
        """The command that does this job, and before it what it needs."""
        return f"python -m helpers sweep {self.name} {job.name}"

    def needed(self, names: list[str]) -> list[Job]:
        """The named jobs and whatever they need; all jobs when none is named."""
        wanted = set(names or self.jobs)
        if unknown := wanted - self.jobs.keys():
            raise SweepError(f"{self.name} has no job {sorted(unknown)[0]!r}; it has {', '.join(self.jobs)}")
        for job in reversed(self.jobs.values()):
            if job.name in wanted:
                wanted.update(job.inputs)
        return [job for job in self.jobs.values() if job.name in wanted]


def read(name: str) -> Sweep:
    """Read a sweep by its name (a file beside this one) or by its path.

    Example:
        >>> read("reference").jobs["baseline"].stage
        'dense'
    """
    path = FOLDER / f"{name}.toml" if (FOLDER / f"{name}.toml").exists() else Path(name)
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        known = ", ".join(sorted(p.stem for p in FOLDER.glob("*.toml")))
        raise SweepError(f"{name!r} is neither a sweep of the course ({known}) nor a file that can be read") from error
    except tomllib.TOMLDecodeError as error:
        raise SweepError(f"{path} is not TOML: {error}") from error
    missing = [key for key in (*PLACES, "jobs") if key not in content]
    if missing or content["data"] not in SOURCES:
        what = f"lacks {', '.join(missing)}" if missing else f"asks for the data {content['data']!r}"
        raise SweepError(f"{path} {what}; see the top of helpers/sweep/jobs.py for the form, and `helpers data --help`")
    places = {key: REPOSITORY / content[key] for key in PLACES[1:]}
    jobs: dict[str, Job] = {}
    for job_name, stated in content["jobs"].items():
        jobs[job_name] = make_job(path, job_name, stated, content.get("defaults", {}), jobs)
    return Sweep(name, content["data"], **places, jobs=jobs)


def make_job(path: Path, name: str, stated: dict[str, Any], defaults: dict[str, Any], before: dict[str, Job]) -> Job:
    """Check one line of a sweep; `before` are the lines above it."""
    where = f"{path.name}, job {name}"
    stage = stated.get("stage")
    if stage not in SETTINGS:
        raise SweepError(f"{where}: stage is {stage!r}; choose one of {', '.join(SETTINGS)}")
    settings = defaults.get(stage, {}) | stated
    source, teacher, ship = settings.pop("from", None), settings.pop("teacher", None), settings.pop("ship", False)
    settings.pop("stage")
    if (source is None) != (stage == "dense"):
        raise SweepError(f"{where}: every job but a dense one starts `from` another; from is {source!r}")
    for needed in filter(None, (source, teacher)):
        if needed not in before:
            raise SweepError(f"{where}: {needed!r} is no job above this one; there are {', '.join(before) or 'none'}")
    if unknown := settings.keys() - SETTINGS[stage]:
        known = ", ".join(sorted(SETTINGS[stage]))
        raise SweepError(f"{where}: {sorted(unknown)[0]!r} is no setting of the stage {stage}; there are {known}")
    job = Job(name, stage, source, teacher, settings, ship)
    try:
        job.config(), job.recipe()
    except (ValueError, RuntimeError) as error:
        raise SweepError(f"{where}: {error}") from error
    if stage in ("fine-tuned", "dense") and (job.config().distill > 0) != (teacher is not None):
        raise SweepError(f"{where}: distillation needs both a teacher and distill > 0; only one of them was given")
    return job
