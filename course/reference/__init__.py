"""The reference networks: sweeps that make them, the tables about them, and the pages that show the
tables.

jobs.py, settings.py    read a sweep, a small TOML file with one line per network, and check it
before anything runs
stages.py               makes the network of a job
keys.py                 tells whether a job was done already, with these very settings
work.py, runner.py      do one job in a process of its own; all jobs, one after the other
measuring.py            what a row says about a saved network
table.py, commits.py    the rows: reading, and writing that several processes may do at once; git
headline.py, ablations.py, readme.py    what is shown of the rows
"""

from course.reference.jobs import Job, Sweep, SweepError, read
from course.reference.runner import run
from course.reference.table import COLUMNS, PUBLISHED, RESULTS, load, published, put
