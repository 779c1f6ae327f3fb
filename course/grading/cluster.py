"""Who does the grading: threads of this process, or the workers of a Dask cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager

SECONDS_TO_CONNECT = 10


class ClusterError(RuntimeError):
    """The cluster cannot be used; says why and what to do."""


@contextmanager
def hands(workers: int | None, scheduler: str | None, version: Callable[[], str]) -> Iterator[tuple[Executor, int]]:
    """Open something that runs tasks, and say how many it runs at a time.

    Args:
        workers: threads in this process; by default one for each core. Of no effect with a scheduler.
        scheduler: address of a Dask scheduler, such as tcp://10.0.0.5:8786, or None to work here.
        version: a function of a module that the workers have, too; it must return there what it returns here.

    Raises:
        ClusterError: if the cluster cannot be reached, has no workers, or has workers of another version.
    """
    if scheduler is not None:
        with _connected(scheduler) as client:
            slots = _check(client, scheduler, version)
            yield client.get_executor(pure=False), slots
        return
    count = workers or os.cpu_count()
    threads = ThreadPoolExecutor(count)
    try:
        yield threads, count
    finally:
        threads.shutdown(wait=True, cancel_futures=True)


def _connected(scheduler: str):
    try:
        from distributed import Client
    except ImportError:
        raise ClusterError(
            "grading over a Dask cluster needs the package distributed: pip install distributed, or the course's "
            "extra: pip install -e .[dask]"
        ) from None
    try:
        return Client(scheduler, timeout=SECONDS_TO_CONNECT, set_as_default=False)
    except (OSError, ValueError) as problem:
        raise ClusterError(
            f"no Dask scheduler answers at {scheduler!r} ({problem}); start one with `dask scheduler` and give the "
            "address that it prints"
        ) from None


def _check(client, scheduler: str, version: Callable[[], str]) -> int:
    """Refuse a cluster whose marks would not be ours. Returns how many tasks it runs at a time."""
    slots = sum(client.nthreads().values())
    if slots == 0:
        raise ClusterError(f"the scheduler at {scheduler} has no workers; start some with `dask worker {scheduler}`")
    try:
        versions = client.run(version)
    except Exception as problem:  # whatever a worker raises comes back as it is
        raise ClusterError(
            f"a worker at {scheduler} cannot load the course ({type(problem).__name__}: {problem}); install it there"
        ) from None
    odd = [worker for worker, theirs in versions.items() if theirs != version()]
    if odd:
        raise ClusterError(f"these workers have another version of the course or of torch: {', '.join(sorted(odd))}")
    return slots
