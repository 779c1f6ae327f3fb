"""Sweeps: lists of independent, resumable jobs, each of which makes one network and one row of results.

A sweep is a small TOML file (`reference.toml` beside this file is the course's own): where the data comes from, where
rows and networks go, what the jobs of each stage have in common, and one line per job.

    jobs.py      reads such a file
    settings.py  tells what may be set, and checks it before anything runs
    stages.py    makes the network of a job
    keys.py      tells whether a job was done already, with these very settings
    work.py      does one job, in a process of its own
    runner.py    does all of them, several at a time
"""

from course.sweep.jobs import Job, Sweep, SweepError, read
from course.sweep.runner import run

__all__ = ["Job", "Sweep", "SweepError", "read", "run"]
