"""A time limit for calls that block in the kernel or in a library, by SIGALRM."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def within(seconds: float, late: Callable[[], Exception]) -> Iterator[None]:
    """Raise the error that `late` makes if the body takes longer. For commands only, since it
    uses SIGALRM. In other threads than the main one, which get no signals, there is no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: object) -> None:
        raise late()

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
