"""Environment variables from a file that an init container wrote, in the form KEY='value'."""

import errno
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.references import FileKeySelector
from kedge.node.pod.dependencies import ConfigFailure
from kedge.supervisor.files import beneath

FILE_BYTES: Final = 64 * 1024
"""Bytes of a file, and of all values in it together."""

Find = Callable[[Pod, str], Path]
"""Returns the path of a pod's volume on this machine."""

_LINE: Final = re.compile(r"\s*(?:#[^\n]*)?(?:\n|$)|([^\s=#'][^=\n]*)='([^']*)'[ \t]*(?:\n|$)")


def lookup(selector: FileKeySelector, volume: Path) -> str | None:
    """Return the value of a variable in a file; None if it is missing and optional."""
    return pick(selector, variables(selector, volume))


def variables(selector: FileKeySelector, volume: Path) -> dict[str, str] | None:
    """Return all variables of a file; None if it does not exist."""
    try:
        return parse(read(volume, selector.path))
    except FileNotFoundError:
        return None


def pick(selector: FileKeySelector, found: Mapping[str, str] | None) -> str | None:
    """Return the value of a variable of a file; None if it is missing and optional."""
    if found is None:
        if selector.optional:
            return None
        raise ConfigFailure(
            f"failed to open env file: volume {selector.volumeName} has no file {selector.path}"
        )
    value = found.get(selector.key)
    if value is None and not selector.optional:
        raise ConfigFailure(
            f'environment variable key "{selector.key}" not found in file "{selector.path}"'
        )
    return value


def read(volume: Path, path: str) -> str:
    """Read the file, which must be inside of the volume after following links. A container wrote
    it: a FIFO in its place must not block a thread forever."""
    try:
        with beneath.directory(volume) as top, beneath.regular(top, path) as file:
            content = beneath.beginning(file, FILE_BYTES + 1)
    except FileNotFoundError:
        raise
    except beneath.NotRegular:
        raise ConfigFailure(f'env file "{path}" is not a regular file') from None
    except OSError as error:
        if error.errno == errno.EXDEV:
            raise ConfigFailure(f'env file "{path}" leads out of its volume') from None
        why = os.strerror(error.errno or 0).lower()
        raise ConfigFailure(f'failed to open env file "{path}": {why}') from None
    if len(content) > FILE_BYTES:
        raise ConfigFailure(f'env file "{path}" is larger than {FILE_BYTES} bytes')
    return content.decode(errors="surrogateescape")


def parse(text: str) -> dict[str, str]:
    """Return all variables. Raises ConfigFailure at the first line that is not KEY='value'."""
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        matched = _LINE.match(text, at)
        if matched is None or matched.end() == at:
            line = text.count("\n", 0, at) + 1
            raise ConfigFailure(f"env file: line {line} is not of the form KEY='value'")
        if matched[1] is not None:
            found[matched[1]] = matched[2]
        at = matched.end()
    return found
