"""The warm parent: forks a keeper for each connection that it is given.

It has no threads and no event loop, so that a fork is a whole process. It ends when the test
process closes the control socket, which the kernel does if that process is killed.
"""

import os
import signal
import socket
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from typing import NoReturn

from kedge.cli.cluster.up import command
from kedge.cli.failure import Failure
from kedge.cluster.warm_parent import leftovers, modules
from kedge.cluster.warm_parent.keeper import keep
from kedge.cluster.warm_parent.rehearsal import rehearse
from kedge.cluster.warm_parent.signing_key import SharedSigningKey


class FlagsParser(ArgumentParser):
    """Parses the flags of `kedge up`, and raises a Failure instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise Failure(message)


def main(descriptor: int) -> None:
    """Serve until the other end of the control socket is closed."""
    control = socket.socket(fileno=descriptor)
    # The kernel reaps the keepers.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    modules.load()
    key = SharedSigningKey()
    rehearse(key)
    parser = FlagsParser(prog="kedge up", allow_abbrev=False, exit_on_error=False, add_help=False)
    command.add_flags(parser)
    modules.share()
    _fork(control, leftovers.remove)
    while connection := _next(control):
        _fork(control, lambda: keep(connection, parser, key))
        connection.close()


def _next(control: socket.socket) -> socket.socket | None:
    """Return the next connection that the test process passes; None at the end."""
    data, descriptors, _, _ = socket.recv_fds(control, 1, 1)
    if not data:
        return None
    return socket.socket(fileno=descriptors[0]) if descriptors else _next(control)


def _fork(control: socket.socket, work: Callable[[], None]) -> None:
    if os.fork():
        return
    code = 1
    try:
        control.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        work()
        code = 0
    except BaseException as error:
        print(f"error: {error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


if __name__ == "__main__":
    main(int(sys.argv[1]))
