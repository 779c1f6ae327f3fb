"""Who works: this process, its threads, or the workers of a Dask cluster."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager

from course.commands.doctor import extra


class Here(Executor):
    """Runs work at once, in this thread, so that Ctrl-C stops it."""

    def submit(self, work: Callable, *inputs: object) -> Future:
        """Do it; an error is raised from here."""
        future: Future = Future()
        future.set_result(work(*inputs))
        return future


@contextmanager
def threads(number: int | None) -> Iterator[tuple[Executor, int]]:
    """Threads of this process, by default one for each core."""
    at_a_time = number or os.cpu_count()
    pool = ThreadPoolExecutor(at_a_time)
    try:
        yield pool, at_a_time
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def cluster(scheduler: str, number: int | None = None) -> Iterator[tuple[Executor, int]]:
    """The workers of a Dask cluster, and how much work to give them at a time.

    If a worker is lost, Dask gives its work to another.
    """
    try:
        from distributed import Client
    except ImportError:
        remedy = extra("cluster")
        raise RuntimeError(f"--scheduler needs Dask, which is not installed: {remedy}") from None
    with Client(scheduler) as client:
        pool = client.get_executor(pure=False)
        try:
            yield pool, number or max(1, sum(client.nthreads().values()))
        finally:
            pool.shutdown(wait=False)
