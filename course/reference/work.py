"""`python -m course.reference.work SWEEP JOB RUNNER [DRY]`: one job in its own process, for
`runner`, whose process number is RUNNER.
"""

import os
import sys
import time
from pathlib import Path
from threading import Thread
from typing import Any

from filelock import FileLock, Timeout

from course.reference import measuring, stages, table
from course.reference.jobs import Job, Sweep, SweepError, read
from course.reference.keys import key_of
from helpers import data, models, training
from helpers.files import move, remove
from helpers.provenance import provenance


def do(job: Job, sweep: Sweep) -> None:
    """Make the job's network unless its file is there already, then write its row."""
    sweep.work.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(sweep.work / f"{job.name}.lock", timeout=5):  # a killed one lets go of it
            do_alone(job, sweep)
    except Timeout as error:
        raise SweepError(
            f"{job.name} is being done by another process; wait for it, or stop it"
        ) from error


def do_alone(job: Job, sweep: Sweep) -> None:
    """`do`, once nobody else does the same job."""
    cifar = data.load_cifar10(sweep.data)
    if cifar.is_sample and sweep.data != "sample":
        raise SweepError(f"{sweep.name} needs all of CIFAR-10; fetch it: python -m course data")
    path, key = sweep.network(job), key_of(job, sweep, table.load(sweep.results))
    if key is None:
        raise SweepError(
            f"{job.name} needs {', '.join(job.inputs)}, which are not there; run"
            f" `{sweep.command(job)}`"
        )
    dense = (
        job.stage == "dense"
    )  # which counts as what it is, however it was trained; any other was made under its key
    if path.exists() and (
        dense or models.read_header(path)[1].get("key") == key
    ):  # only its row was missing
        evaluated = measuring.evaluate(measuring.in_integers(models.load(path)), cifar)
        kept = models.read_header(path)[1].get("metrics", {}).get("cut_accuracy")
        evaluated["cut_accuracy"] = kept
    else:
        evaluated = make(job, sweep, cifar, key)
    key = key_of(job, sweep, table.load(sweep.results)) if dense else key
    row = {"name": job.name, "stage": job.stage, "source": job.source, "key": key}
    row |= {"checkpoint": path.name if job.ship else None}
    row |= {"cut_accuracy": None}  # an older row of the name may have one
    table.put([row | measuring.row(path, evaluated)], sweep.results)


def make(job: Job, sweep: Sweep, cifar: data.Dataset, key: str) -> dict[str, Any]:
    """Make the network, write it with what it reached and where it comes from, and return what it
    reached.
    """
    source, teacher = (
        models.load(sweep.network(sweep.jobs[n])) if n else None for n in (job.source, job.teacher)
    )
    path, unfinished = (
        sweep.network(job),
        [sweep.unfinished(job, key, end) for end in ("handover", "cut")],
    )
    files = stages.Files(sweep.work / f"{job.name}-{key}.state", *unfinished)
    written = models.save(
        stages.make(job, source, teacher, cifar, files), path.with_suffix(".part")
    )
    reloaded = measuring.in_integers(models.load(written))
    evaluated = measuring.evaluate(reloaded, cifar)
    if files.cut.exists():
        just_cut = training.evaluate(models.load(files.cut), cifar.test_images, cifar.test_labels)
        evaluated["cut_accuracy"] = just_cut.accuracy
    origin = provenance(job.settings.get("seed", 0)) | {
        "command": sweep.command(job),
        "data": cifar.source,
    }
    # A file with this name and key counts as done, so it gets its name only after the checks.
    final = path.with_suffix(".final.part")
    metrics = {"test_accuracy": evaluated["accuracy"], "test_images": evaluated["images"]}
    metrics |= {"test_interval": [evaluated["low"], evaluated["high"]]}
    metrics |= {"validation_accuracy": evaluated["validation_accuracy"]}
    metrics |= {"cut_accuracy": evaluated.get("cut_accuracy")}
    models.save(reloaded, final, metrics=metrics, provenance=origin, key=key)
    size, budget = final.stat().st_size, job.settings.get("file_bytes")
    if budget is not None and size > budget:
        told = f"{job.name}: the file has {size} bytes, more than its file_bytes = {budget}"
        raise SweepError(f"{told}; allow more, or start from a smaller network")
    if measuring.weights_of(written) != measuring.weights_of(final):
        raise SweepError(
            f"{final} differs from the network that was measured, {written}; run the job again"
        )
    move(final, path)
    for left in (written, *files, files.handover.with_suffix(".csv")):
        remove(left)
    return evaluated


def end_with(runner: int) -> None:
    """End when the runner is killed: a job that goes on unseen would keep its lock."""
    if os.name == "nt":  # a virtual environment starts Python through a program in between
        return
    while os.getppid() == runner:
        time.sleep(1)
    os._exit(1)


if __name__ == "__main__":
    Thread(target=end_with, args=[int(sys.argv[3])], daemon=True).start()
    try:
        found = read(sys.argv[1], *map(Path, sys.argv[4:]))
        do(found.jobs[sys.argv[2]], found)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        sys.exit(1)
