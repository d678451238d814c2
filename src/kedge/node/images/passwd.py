"""Users of an image: resolves user and group names by the image's own files."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kedge.node.images import layers

_LARGEST: Final = (1 << 31) - 1
_MOST_BYTES: Final = 10 << 20


class NoSuchUser(LookupError):
    """The image does not have the user or group; the text is that of the container runtimes."""


class ImageUser(msgspec.Struct, frozen=True):
    """The identity of a container's processes."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    """The supplementary groups from the image's group file, and `gid`. A group that overrides the
    primary group replaces it, as in other runtimes."""
    home: str = "/"
    """The default of HOME."""


def declared_user(text: str) -> int | str:
    """Return the user in an image's configuration, as a number or a name; 0 for none.

    A group beside it is ignored, as the kubelet does not pass it to the container runtime.
    """
    name = text.partition(":")[0]
    number = _number(name)
    return number if number is not None else name or 0


def requested_user(user: int | None, username: str, group: int | None, image_user: str) -> str:
    """Return `user[:group]` to look up, from the pod or else from the image."""
    name = str(user) if user is not None else username or str(declared_user(image_user))
    return name if group is None else f"{name}:{group}"


def lookup(below: Sequence[Path], text: str) -> ImageUser:
    """Resolve `user[:group]`, each a name or a number, in the layers of an image or below one root.

    A number need not exist. Raises NoSuchUser for an unknown name.
    """
    stack = [str(layer) for layer in below]
    name, _, group = text.partition(":")
    account = _account(stack, name or "0")
    gid = _group(stack, group) if group else account.gid
    groups = _memberships(stack, account.name)
    return ImageUser(account.uid, gid, tuple(sorted({gid, *groups})), account.home)


class _PasswdEntry(msgspec.Struct, frozen=True):
    name: str
    uid: int
    gid: int = 0
    home: str = "/"


def _account(stack: Sequence[str], wanted: str) -> _PasswdEntry:
    number = _number(wanted)
    for fields in _lines(stack, "/etc/passwd", 7, wanted if number is None else str(number)):
        uid, gid = _number(fields[2]), _number(fields[3])
        if uid is None or gid is None:
            continue
        # A name takes precedence over a number with the same spelling.
        if fields[0] == wanted or uid == number:
            return _PasswdEntry(fields[0], uid, gid, fields[5] or "/")
    if number is None:
        raise NoSuchUser(f"unable to find user {wanted}: no matching entries in passwd file")
    return _PasswdEntry("", number)


def _group(stack: Sequence[str], wanted: str) -> int:
    number = _number(wanted)
    if number is not None:
        return number
    for fields in _lines(stack, "/etc/group", 4, wanted):
        gid = _number(fields[2])
        if fields[0] == wanted and gid is not None:
            return gid
    raise NoSuchUser(f"unable to find group {wanted}: no matching entries in group file")


def _memberships(stack: Sequence[str], name: str) -> Iterator[int]:
    for fields in _lines(stack, "/etc/group", 4, name) if name else ():
        gid = _number(fields[2])
        if gid is not None and name in fields[3].split(","):
            yield gid


def _lines(stack: Sequence[str], path: str, least: int, word: str) -> Iterator[list[str]]:
    """Yield the entries of a file that contain a word, as fields; incomplete entries are
    skipped."""
    found = layers.resolve(stack, path)
    if found is None or not found.is_file:
        return
    with open(found.path, "rb") as file:
        content = file.read(_MOST_BYTES)
    for line in content.decode(errors="surrogateescape").splitlines():
        if word not in line:
            continue
        fields = line.strip().split(":")
        if len(fields) >= least and not line.startswith("#"):
            yield fields


def _number(text: str) -> int | None:
    if not (text.isascii() and text.isdigit()):
        return None
    if int(text) > _LARGEST:
        raise NoSuchUser(f"uids and gids must be in range 0-{_LARGEST}")
    return int(text)
