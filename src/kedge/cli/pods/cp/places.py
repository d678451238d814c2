"""The two paths of `kedge cp`, and the names in an archive; pure."""

import posixpath
from typing import NamedTuple

from kedge.cli.failure import Failure


class FilePlace(NamedTuple):
    """A path on this machine, or in a container."""

    path: str
    pod: str = ""
    """Empty for this machine."""
    namespace: str = ""


def direction(source: str, target: str) -> tuple[FilePlace, FilePlace]:
    """Read both paths; exactly one of them is in a container."""
    places = parse(source), parse(target)
    if bool(places[0].pod) == bool(places[1].pod):
        raise Failure(
            "one of the two paths must be in a container, as POD:PATH, and the other one on this"
            " machine"
        )
    for place in places:
        if not place.path:
            raise Failure("filepath can not be empty")
    return places


def parse(text: str) -> FilePlace:
    """Read `PATH`, `POD:PATH` or `NAMESPACE/POD:PATH`. A path with a colon begins with / or ./"""
    pod, colon, path = text.partition(":")
    if not colon or text.startswith(("/", ".")):
        return FilePlace(text)
    namespace, slash, name = pod.rpartition("/")
    if not name or "/" in namespace or (slash and not namespace):
        raise Failure(f'"{text}" is neither a path nor [NAMESPACE/]POD:PATH')
    return FilePlace(path, name, namespace)


def inside(name: str, root: str) -> str | None:
    """Return the path of an archive's member below its root; None if it is not below it.

    Members are written by a program in a container, which must not reach other files of this
    machine.
    """
    clean = posixpath.normpath(name.lstrip("/"))
    base = posixpath.normpath(root.lstrip("/")) if root.strip("/") else "."
    if clean == base:
        return ""
    prefix = "" if base == "." else f"{base}/"
    below = clean.removeprefix(prefix)
    if not clean.startswith(prefix) or below in ("..", ".") or below.startswith(("../", "/")):
        return None
    return below
