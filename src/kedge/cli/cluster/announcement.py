"""The announcement of a server to the program that started it: one line through a pipe."""

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
    """Write the line to the pipe. A reader that was killed is not an error: the next 'kedge up'
    finds this process."""
    with contextlib.suppress(BrokenPipeError):
        os.write(descriptor, line)
    os.close(descriptor)


def check_reader(descriptor: int | None) -> Callable[[], None]:
    """Return a check that raises if the pipe has no reader.

    A program calls it after it has locked its pid file. If its starter was killed before that, a
    'kedge down' in between did not find this process, so it must exit.
    """

    def check() -> None:
        if descriptor is None:
            return
        poll = select.poll()
        # poll(2) always reports POLLERR for a pipe without a reader.
        poll.register(descriptor, 0)
        if poll.poll(0):
            raise Failure("the process that started this one has ended")

    return check
