"""A bound in time for what waits in the kernel or in a library, by the timer of the process."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def within(seconds: float, late: Callable[[], Exception]) -> Iterator[None]:
    """Raise what `late` makes if the body takes longer than that. For commands only: it takes the
    SIGALRM of the process. Outside of the main thread, where no signal arrives, nothing is bound.
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
