"""What a server tells the program that started it, as one line through a pipe."""

import contextlib
import os
import select
from collections.abc import Callable

import msgspec

from kedge.cli.failure import Failure


class Announcement(msgspec.Struct, frozen=True, rename="camel"):
    """The server answers: where, how to trust it, and what to say to it."""

    url: str
    ca_pem: bytes
    token: str


def encode(announcement: Announcement) -> bytes:
    return msgspec.json.encode(announcement) + b"\n"


def decode(line: bytes) -> Announcement:
    return msgspec.json.decode(line, type=Announcement)


def say(descriptor: int, line: bytes) -> None:
    """Write the line to the pipe. If the reader was killed meanwhile that changes nothing: the next
    'kedge up' finds this process."""
    with contextlib.suppress(BrokenPipeError):
        os.write(descriptor, line)
    os.close(descriptor)


def check_reader(descriptor: int | None) -> Callable[[], None]:
    """A check that raises if the reader of the pipe is gone.

    Whoever has just claimed its place asks: a starter that was killed before that can no longer end
    this process, and a 'kedge down' in between has not seen it.
    """

    def check() -> None:
        if descriptor is None:
            return
        poll = select.poll()
        # A pipe without a reader shows an error, whatever is asked for.
        poll.register(descriptor, 0)
        if poll.poll(0):
            raise Failure("the process that started this one has ended meanwhile")

    return check
