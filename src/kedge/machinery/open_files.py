"""How many files and connections a process may have open."""

import contextlib
import resource


def raise_limit() -> None:
    """Take all that the machine allows this process.

    The usual soft limit of 1,024 is there for programs that use select(), which cannot name more;
    an event loop can. Children inherit the limit, so whoever starts programs of others puts theirs
    back (kedge.node.runtime.spawn).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # Some kernels promise more in the hard limit than fs.nr_open lets anybody have.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
