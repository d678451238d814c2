"""What a server tells the program that started it, as one line through a pipe."""

import msgspec


class Announcement(msgspec.Struct, frozen=True, rename="camel"):
    """The server answers: where, how to trust it, and what to say to it."""

    url: str
    ca_pem: bytes
    token: str


def encode(announcement: Announcement) -> bytes:
    return msgspec.json.encode(announcement) + b"\n"


def decode(line: bytes) -> Announcement:
    return msgspec.json.decode(line, type=Announcement)
