"""Threads that tenants share: no tenant's work waits for all the work of another."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any, TypeVar

from kedge.machinery.tenant import current_tenant

Result = TypeVar("Result")


class TenantJob:
    """A call that waits for a thread."""

    def __init__(self, future: Future[Any], call: Callable[[], Any]) -> None:
        self.future = future
        self._call = call

    def take(self) -> tuple[Future[Any], Callable[[], Any]]:
        """Return the future and the call, and refer to them no more: an error of the call refers
        to frames of the thread, which refer to the job."""
        taken = self.future, self._call
        del self.future, self._call
        return taken


class TenantThreads(ThreadPoolExecutor):
    """An executor in which tenants take turns. Work of the server itself has no tenant: it does
    not wait for tenants, as long as they may not have all the threads.

    The number of jobs that wait is that of the requests that the server works on, because a
    request waits for one job at a time. A job whose request was given up is dropped.
    """

    def __init__(self, threads: int, name: str, *, for_tenants: int) -> None:
        super().__init__(threads, name)
        self._free = for_tenants
        self._lock = Lock()
        self._turns: deque[str] = deque()
        """Tenants with jobs that wait, the next one first."""
        self._jobs: dict[str, dict[int, TenantJob]] = {}

    def submit(self, fn: Callable[..., Result], /, *args: Any, **options: Any) -> Future[Result]:
        """Run a function in a thread when it is the turn of the tenant."""
        name = current_tenant()
        if not name:
            return super().submit(fn, *args, **options)
        future: Future[Result] = Future()
        key = id(future)
        with self._lock:
            if name not in self._jobs:
                self._jobs[name] = {}
                self._turns.append(name)
            self._jobs[name][key] = TenantJob(future, lambda: fn(*args, **options))
        # Must not refer to the future, which keeps it: the result, such as a decoded body of
        # megabytes, would be part of a cycle, and a server searches for cycles rarely.
        future.add_done_callback(lambda _: self._drop(name, key))
        self._start()
        return future

    def _start(self) -> None:
        while (job := self._next()) is not None:
            if not job.future.set_running_or_notify_cancel():
                self._release()
                continue
            try:
                super().submit(self._run, job)
            except RuntimeError as error:  # the server ends
                job.future.set_exception(error)
                self._release()

    def _next(self) -> TenantJob | None:
        """Take a thread and the first job of the next tenant; None if there is none of either."""
        with self._lock:
            if not self._free or not self._turns:
                return None
            name = self._turns.popleft()
            jobs = self._jobs[name]
            job = jobs.pop(next(iter(jobs)))
            if jobs:
                self._turns.append(name)
            else:
                del self._jobs[name]
            self._free -= 1
            return job

    def _run(self, job: TenantJob) -> None:
        future, call = job.take()
        try:
            result = call()
        except BaseException as error:
            self._release()
            future.set_exception(error)
            # The error refers to this frame, which would refer to the error.
            del future
        else:
            self._release()
            future.set_result(result)
        self._start()

    def _release(self) -> None:
        with self._lock:
            self._free += 1

    def _drop(self, name: str, key: int) -> None:
        """Forget a job that was cancelled while it waited."""
        with self._lock:
            jobs = self._jobs.get(name)
            if jobs is None or jobs.pop(key, None) is None or jobs:
                return
            del self._jobs[name]
            self._turns.remove(name)
