"""Who grades: threads of this process, or the workers of a Dask cluster."""

import os
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager

from course.grading.machine import BoxError


@contextmanager
def executor(scheduler: str | None, workers: int | None) -> Iterator[tuple[Executor, int]]:
    """What takes the work, and how much of it at a time.

    Dask gives the work of a worker that is lost to another one.
    """
    if scheduler is None:
        at_a_time = workers or os.cpu_count()
        threads = ThreadPoolExecutor(at_a_time)
        try:
            yield threads, at_a_time
        finally:
            threads.shutdown(cancel_futures=True)
        return
    try:
        from distributed import Client
    except ImportError:
        remedy = "pip install -e '.[cluster]' -c constraints.txt"
        raise BoxError(f"--scheduler needs Dask, which is not installed: {remedy}") from None
    with Client(scheduler) as client:
        cluster = client.get_executor(pure=False)
        try:
            yield cluster, workers or max(1, sum(client.nthreads().values()))
        finally:
            cluster.shutdown(wait=False)
