"""Copy files by running tar in the container."""

import asyncio
import contextlib
import os
import posixpath
import sys
import tarfile
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession
from kedge.cli.pods import containers
from kedge.cli.pods.cp.places import FilePlace, inside
from kedge.cli.pods.exec.session import ExecOptions, connect
from kedge.client.client import path_of
from kedge.web.websocket import WebSocket

_CHUNK: Final = 32 << 10
_STDIN, _STDOUT, _STDERR, _ERROR, _CLOSE = 0, 1, 2, 3, 255
_MOST_SAID: Final = 4096
_NO_TAR: Final = "not found"


async def copy(there: ApiSession, source: FilePlace, target: FilePlace, container: str) -> int:
    """Copy between this machine and a container."""
    remote = source if source.pod else target
    if remote.namespace:
        there = msgspec.structs.replace(there, given_namespace=remote.namespace)
    pod = await containers.find(there, remote.pod)
    name = containers.check(pod, container) if container else containers.usual(pod)
    program = ContainerProgram(there, remote.pod, name)
    if source.pod:
        await _out(program, source.path, Path(target.path))
    else:
        await _into(program, Path(source.path), target.path)
    return 0


class ContainerProgram:
    """Runs programs in one container."""

    def __init__(self, there: ApiSession, pod: str, container: str) -> None:
        self._there = there
        self._pod = pod
        self._container = container

    async def run(
        self,
        command: Sequence[str],
        stdin: AsyncIterator[bytes] | None = None,
        out: Callable[[bytes], object] = lambda _: None,
    ) -> tuple[bool, str]:
        """Run a command; returns whether it succeeded, and the end of its complaints."""
        asked = ExecOptions(self._pod, command, stdin=stdin is not None)
        path = path_of(PODS, self._there.namespace, self._pod, "exec")
        socket = await connect(self._there, f"{path}?{asked.query(self._container)}")
        try:
            if stdin is None:
                return await _receive(socket, out)
            async with asyncio.TaskGroup() as tasks:
                sending = tasks.create_task(_send(socket, stdin))
                done = await _receive(socket, out)
                sending.cancel()
            return done
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            await socket.close()


async def _send(socket: WebSocket, pieces: AsyncIterator[bytes]) -> None:
    # A program that reads no more ends the connection. Its exit status says why.
    with contextlib.suppress(ConnectionError):
        async for piece in pieces:
            socket.send(bytes((_STDIN,)) + piece)
            await socket.drain()
        socket.send(bytes((_CLOSE, _STDIN)))


async def _receive(socket: WebSocket, out: Callable[[bytes], object]) -> tuple[bool, str]:
    said = b""
    while (message := await socket.receive()) is not None:
        channel, data = message[:1], message[1:]
        if channel == bytes((_STDOUT,)):
            out(data)
        elif channel == bytes((_STDERR,)):
            said = (said + data)[-_MOST_SAID:]
        elif channel == bytes((_ERROR,)) and data:
            status: dict[str, Any] = msgspec.json.decode(data)
            text = said.decode(errors="replace").strip() or str(status.get("message", ""))
            return status.get("status") == "Success", text
    raise Failure("the connection was lost before everything was copied")


def _check(done: tuple[bool, str]) -> None:
    succeeded, said = done
    if succeeded:
        return
    if "tar" in said and _NO_TAR in said:
        raise Failure(f"the container has no program tar, which copying needs: {said}")
    # GNU tar remarks this on every absolute path.
    lines = [each for each in said.splitlines() if "Removing leading" not in each]
    raise Failure("\n".join(lines) or "tar failed in the container")


# Into a container.


async def _into(program: ContainerProgram, source: Path, target: str) -> None:
    is_directory, _ = await program.run(["test", "-d", target])
    source = await asyncio.to_thread(source.absolute)
    place, name = posixpath.split(target.rstrip("/"))
    if is_directory:
        place, name = target, source.name
    with tempfile.TemporaryFile() as archive:
        await asyncio.to_thread(_pack, archive, source, name)
        command = ["tar", "-xmf", "-", "-C", place or "/"]
        _check(await program.run(command, _pieces(archive)))


def _pack(archive: IO[bytes], source: Path, name: str) -> None:
    try:
        with tarfile.open(fileobj=archive, mode="w") as packed:
            packed.add(source, arcname=name)
    except FileNotFoundError as error:
        raise Failure(f"{source} doesn't exist in local filesystem") from error
    except OSError as error:
        raise Failure(f"{error.filename or source}: {error.strerror}") from error
    archive.seek(0)


async def _pieces(archive: IO[bytes]) -> AsyncIterator[bytes]:
    while data := archive.read(_CHUNK):
        yield data


# Out of a container.


async def _out(program: ContainerProgram, source: str, target: Path) -> None:
    with tempfile.TemporaryFile() as archive:
        _check(await program.run(["tar", "cf", "-", source], out=archive.write))
        archive.seek(0)
        await asyncio.to_thread(_unpack, archive, source, target)


def _unpack(archive: IO[bytes], source: str, target: Path) -> None:
    """Write directories and regular files; links could lead anywhere on this machine."""
    if target.is_dir():
        target = target / posixpath.basename(source.rstrip("/"))
    try:
        with tarfile.open(fileobj=archive, mode="r") as packed:
            for member in packed:
                below = inside(member.name, source)
                if below is None or not (member.isdir() or member.isreg()):
                    print(f"warning: {member.name} is skipped: no file", file=sys.stderr)
                    continue
                _write(packed, member, target / below if below else target)
    except tarfile.TarError as error:
        raise Failure(f"the container sent an archive that cannot be read: {error}") from error
    except OSError as error:
        raise Failure(f"{error.filename or target}: {error.strerror}") from error


def _write(packed: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return
    content = packed.extractfile(member)
    assert content is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    # O_NOFOLLOW: a link that lies there already is not written through.
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, member.mode & 0o777), "wb") as file:
        while data := content.read(1 << 20):
            file.write(data)
