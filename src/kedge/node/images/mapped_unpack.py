"""Unpacks layers with the owners of their files, for an ordinary user with subordinate ids.

A process of its own is root of a user namespace that has these ids. It gets the tar file by a pipe,
so that this process checks size and digest as always.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from kedge.node.images import unpack
from kedge.node.images.oci import InvalidImage
from kedge.node.images.streams import CHUNK, ForwardReader
from kedge.node.images.unpack import ImageLimits
from kedge.supervisor.files import mapped

_START: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from kedge.node.images.mapped_unpack import main; main(sys.argv[2])"
)
_READY: Final = b"ready\n"
_MOST_ANSWER: Final = 1 << 16
_END_SECONDS: Final = 600.0
"""Seconds to finish once the whole file was sent."""


class UnpackRequest(msgspec.Struct, frozen=True):
    """The arguments of `unpack` besides the tar file."""

    into: str
    below: list[str]
    limits: ImageLimits


class UnpackAnswer(msgspec.Struct, frozen=True):
    """The size of the layer, or what is wrong."""

    size: int = 0
    error: str = ""
    is_invalid: bool = False
    """Whether the file is wrong, not the machine."""


def unpack_with_owners(
    tar: ForwardReader, into: Path, below: Sequence[Path], limits: ImageLimits
) -> int:
    """Unpack a layer as `unpack` does. Its files have their owners if this user has subordinate
    ids, else they are all this user's."""
    if mapped.is_available():
        request = UnpackRequest(str(into), [str(each) for each in below], limits)
        with _process(request) as process:
            assert process.stdout is not None
            if process.stdout.readline(len(_READY)) == _READY:
                try:
                    return _result(tar, process)
                finally:
                    process.kill()
    return unpack.unpack(tar, into, below, limits)


def _process(request: UnpackRequest) -> "subprocess.Popen[bytes]":
    text = msgspec.json.encode(request).decode()
    command = [sys.executable, "-I", "-X", "utf8", "-c", _START, json.dumps(sys.path), text]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/")


def _result(tar: ForwardReader, process: "subprocess.Popen[bytes]") -> int:
    _send(tar, process)
    try:
        said, _ = process.communicate(timeout=_END_SECONDS)
        answer = msgspec.json.decode(said[:_MOST_ANSWER], type=UnpackAnswer)
    except (subprocess.TimeoutExpired, msgspec.DecodeError) as error:
        raise OSError("the process that unpacks the layer has failed") from error
    if answer.error:
        raise InvalidImage(answer.error) if answer.is_invalid else OSError(answer.error)
    return answer.size


def _send(tar: ForwardReader, process: "subprocess.Popen[bytes]") -> None:
    """Send the file until the process has read enough: it stops at the first error, and at the end
    of the archive."""
    assert process.stdin is not None
    try:
        while data := tar.read(CHUNK):
            process.stdin.write(data)
    except BrokenPipeError:
        return


def main(text: str) -> None:
    """Unpack the standard input in a user namespace, and print the answer."""
    if not mapped.enter():
        return
    sys.stdout.buffer.write(_READY)
    sys.stdout.buffer.flush()
    answer = _answer(msgspec.json.decode(text, type=UnpackRequest))
    sys.stdout.buffer.write(msgspec.json.encode(answer))


def _answer(request: UnpackRequest) -> UnpackAnswer:
    source: Any = sys.stdin.buffer
    tar = ForwardReader(source, 2 * request.limits.layer_bytes)
    below = [Path(each) for each in request.below]
    try:
        size = unpack.unpack(tar, Path(request.into), below, request.limits)
        # The rest is for the digest, which the other side computes while it sends.
        tar.digest()
    except InvalidImage as error:
        return UnpackAnswer(error=str(error), is_invalid=True)
    except OSError as error:
        return UnpackAnswer(error=str(error))
    return UnpackAnswer(size=size)
