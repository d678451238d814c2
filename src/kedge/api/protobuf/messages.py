"""Protobuf messages of Kubernetes: the fields of each by number.

`builtin/protobuf.json` holds the table; tools/derive_protobuf.py writes it. A field is `name type`,
perhaps followed by a mark. The type is as in builtin/schemas.json, with `int`, `bool` and
`duration` besides, and `json` for bytes that hold JSON. Two names are special:

    .    the fields of the message appear among those around it
    *    the field is all there is to the message and stands for it; if several are, the last one

The marks tell what a zero means:

    pointer    the field is sent only if it is set, and then zero means zero
    kept       JSON would show the zero too
"""

from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

MAGIC: Final = b"k8s\x00"
"""The first bytes of an encoded object."""
MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"


class MessageField(NamedTuple):
    """One field of a message."""

    name: str
    type: str
    """Of a list or map: the type of the elements."""
    many: str
    """`list`, `map`, or nothing."""
    pointer: bool
    kept: bool


def message_name(api_version: str, kind: str) -> str:
    """Return the name of the message of a kind; it may be unknown."""
    group, _, version = api_version.rpartition("/")
    name = f"{group.partition('.')[0] or 'core'}.{version}.{kind}"
    # Options and the like are known in every group.
    return name if name in _table() else f"meta.v1.{kind}"


def is_known(message: str) -> bool:
    return message in _table()


@cache
def fields_of(message: str) -> dict[int, MessageField]:
    """Return the fields of a message by their numbers."""
    return {int(number): _field(text) for number, text in _table()[message].items()}


@cache
def _table() -> dict[str, dict[str, str]]:
    text = Path(__file__).parents[1].joinpath("builtin", "protobuf.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, dict[str, str]])


def _field(text: str) -> MessageField:
    name, type_, *marks = text.split()
    many = {"[": "list", "{": "map"}.get(type_[0], "")
    bare = type_[1:-1] if many else type_
    return MessageField(name, bare, many, "pointer" in marks, "kept" in marks)
