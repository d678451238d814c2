"""The limit of open files and connections of a process."""

import contextlib
import resource


def raise_limit() -> None:
    """Raise the soft limit of open files to the hard limit.

    The usual soft limit of 1,024 exists for programs that use select(), which an event loop does
    not. Children inherit the limit, so the code that starts containers restores the old one
    (kedge.node.runtime.spawn).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # The hard limit may exceed fs.nr_open.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
