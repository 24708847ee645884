"""Executors for ``tw.sweep(..., executor=)`` where a library has none of its own.

Processes, loky, Dask and mpi4py have ``concurrent.futures`` executors: docs/guide/python-cluster.md.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

T = TypeVar("T")


class Ray(Executor):
    """Work as tasks of Ray, one processor each.

    options
        Of the tasks, as ``ray.remote`` takes them: ``num_cpus``, ``max_retries``, ``scheduling_strategy``, ...

    Ray is started on this machine unless ``ray.init`` was called. A task whose worker dies is tried again, up to
    ``max_retries`` times (3).
    """

    def __init__(self, **options: Any) -> None:
        import ray

        self._ray: Any = ray
        self._options = {"num_cpus": 1, **options}
        self._pending: set[Future[Any]] = set()
        self._closed = False
        if not ray.is_initialized():
            ray.init(include_dashboard=False, log_to_driver=False)

    def submit(self, work: Callable[..., T], /, *arguments: Any, **named: Any) -> Future[T]:
        if self._closed:
            raise RuntimeError("this executor was shut down")
        task = self._ray.remote(**self._options)(_call).remote(work, arguments, named)
        future: Future[T] = task.future()
        self._pending.add(future)

        def ended(future: Future[T]) -> None:
            self._pending.discard(future)
            if future.cancelled():
                self._ray.cancel(task)

        future.add_done_callback(ended)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more work. Ray itself goes on."""
        from concurrent.futures import wait as wait_for

        self._closed = True
        pending = list(self._pending)
        if cancel_futures:
            for future in pending:
                future.cancel()
        if wait:
            wait_for(pending)


def _call(work: Callable[..., T], arguments: tuple[Any, ...], named: dict[str, Any]) -> T:
    return work(*arguments, **named)
