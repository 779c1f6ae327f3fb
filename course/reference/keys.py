"""Whether a job was done already: its key is a hash of its settings and of the networks that it
starts from.
"""

import hashlib
import json

import pandas as pd

from course.reference.jobs import Job, Sweep
from course.reference.measuring import weights_of


def key_of(job: Job, sweep: Sweep, rows: pd.DataFrame) -> str | None:
    """The key of a job; None while a network that it needs is not known.

    A dense network that is there already counts as it is, however it was trained.
    """
    inputs = {name: known_weights(sweep.jobs[name], sweep, rows) for name in job.inputs}
    if job.stage == "dense" and sweep.network(job).exists():
        inputs[job.name] = weights_of(sweep.network(job))
    if None in inputs.values():
        return None
    settings = {} if job.name in inputs else job.settings
    # Sorted, `inputs` no longer say which is the teacher. Only where that matters is it added, so
    # that older keys stay valid.
    turned = [job.inputs] if job.inputs < job.inputs[::-1] else []
    content = json.dumps([job.stage, settings, sweep.data, inputs, *turned], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def known_weights(job: Job, sweep: Sweep, rows: pd.DataFrame) -> str | None:
    """The hash of a job's network: of its file if that is here, else as its row has it."""
    path = sweep.network(job)
    if path.exists():
        return weights_of(path)
    found = rows[(rows.name == job.name) & (rows.status == "measured")]
    return None if found.empty else str(found.weights.iloc[0])


def is_done(job: Job, sweep: Sweep, rows: pd.DataFrame) -> bool:
    """Whether the table has the row of this job, made with these settings from these networks, and
    of its file.
    """
    key = key_of(job, sweep, rows)
    found = rows[(rows.name == job.name) & (rows.key == key)]
    return key is not None and known_weights(job, sweep, found) in set(found.weights)


def still_to_do(wanted: list[Job], sweep: Sweep, rows: pd.DataFrame) -> list[Job]:
    """The jobs to run, in order: those not done, those after them, and those whose missing network
    these need.
    """
    names = set()
    for job in wanted:
        if names.intersection(job.inputs) or not is_done(job, sweep, rows):
            names.add(job.name)
    for job in reversed(wanted):
        if job.name in names:
            names.update(
                name for name in job.inputs if not sweep.network(sweep.jobs[name]).exists()
            )
    return [job for job in wanted if job.name in names]
