"""Credentials in docker's configuration file, and those that its credential helpers keep."""

import os
import re
import selectors
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from kedge.machinery.clock import SystemClock
from kedge.node.images import credentials
from kedge.node.images.credentials import RegistryAuth, RegistryCredential, RegistryKeyring
from kedge.node.images.oci import InvalidImage
from kedge.node.images.reference import HUB

FILE: Final = "config.json"
HELPER_SECONDS: Final = 20.0
"""How long a helper may take; it may ask its user for a password."""
_HELPER_BYTES: Final = 64 << 10
_FILE_BYTES: Final = 1 << 20
_HUB_KEY: Final = "https://index.docker.io/v1/"
"""The name of Docker Hub in this file."""
_HELPER: Final = re.compile("[A-Za-z0-9][A-Za-z0-9._-]*")
_IDENTITY: Final = "<token>"
"""The user name by which a helper says that its secret is a refresh token."""


class _ConfigFile(msgspec.Struct, frozen=True):
    auths: Mapping[str, RegistryAuth | None] | None = None
    credHelpers: Mapping[str, str] | None = None  # noqa: N815 - the name in the file
    credsStore: str | None = None  # noqa: N815 - the name in the file


class _HelperAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    username: str = ""
    secret: str = ""


class DockerCredentials:
    """The credentials of one file. Fulfils CredentialSource; a helper may block for seconds."""

    def __init__(self, path: Path, environment: Mapping[str, str]) -> None:
        """`environment` is that of the helpers."""
        self._path = path
        self._environment = environment

    def find(self, repository: str) -> list[RegistryCredential]:
        """Return the credentials for a repository; raises InvalidImage if the file or its helper
        is broken. A file that does not exist has none."""
        config = self._read()
        host = repository.partition("/")[0]
        key = _HUB_KEY if host == HUB else host
        helper = (config.credHelpers or {}).get(key) or (config.credHelpers or {}).get(host)
        helper = helper or config.credsStore
        if helper and (kept := self._ask(helper, key)):
            return [kept]
        broken = InvalidImage(f"{self._path} has credentials that cannot be read")
        entries = [
            (credentials.registry_place(place), known)
            for place, entry in (config.auths or {}).items()
            if entry and (known := credentials.credential(entry, broken))
        ]
        return RegistryKeyring(tuple(entries)).find(repository)

    def _read(self) -> _ConfigFile:
        try:
            with open(self._path, "rb") as file:
                content = file.read(_FILE_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError):
            return _ConfigFile()
        except OSError as error:
            raise InvalidImage(f"{self._path} cannot be read: {error.strerror}") from error
        try:
            if len(content) <= _FILE_BYTES:
                return msgspec.json.decode(content, type=_ConfigFile)
        except msgspec.MsgspecError:
            pass
        # The error is not quoted: it may have a part of a password.
        raise InvalidImage(f"{self._path} is not docker's configuration in JSON") from None

    def _ask(self, helper: str, server: str) -> RegistryCredential | None:
        """Return what a helper keeps for a server; None if it keeps nothing."""
        name = f"docker-credential-{helper}"
        program = shutil.which(name, path=self._environment.get("PATH", os.defpath))
        if not _HELPER.fullmatch(helper) or program is None:
            raise InvalidImage(f"{name}, which {self._path} names, is not installed")
        status, output = _run([program, "get"], server.encode(), dict(self._environment))
        if status != 0:
            # Helpers have no other way to say that they know no credentials.
            return None
        try:
            answer = msgspec.json.decode(output, type=_HelperAnswer)
        except msgspec.MsgspecError:
            raise InvalidImage(f"{name} did not answer with credentials") from None
        if answer.username == _IDENTITY:
            return RegistryCredential("", "", answer.secret)
        return RegistryCredential(answer.username, answer.secret)


def _run(command: list[str], question: bytes, environment: Mapping[str, str]) -> tuple[int, bytes]:
    """Return the exit code and the output of a helper, within bounds of time and size."""
    try:
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        ) as process:
            try:
                return _talk(process, question, os.path.basename(command[0]))
            finally:
                _kill(process)
    except OSError as error:
        raise InvalidImage(f"{command[0]} failed: {error.strerror or error}") from error


def _talk(process: "subprocess.Popen[bytes]", question: bytes, name: str) -> tuple[int, bytes]:
    assert process.stdin is not None
    assert process.stdout is not None
    clock = SystemClock()
    deadline = clock.monotonic() + HELPER_SECONDS
    try:
        process.stdin.write(question)
        process.stdin.close()
    except BrokenPipeError:
        pass
    output = b""
    with selectors.DefaultSelector() as ready:
        ready.register(process.stdout, selectors.EVENT_READ)
        while len(output) <= _HELPER_BYTES:
            if not ready.select(max(0.0, deadline - clock.monotonic())):
                raise InvalidImage(f"{name} did not answer within {HELPER_SECONDS:g} s")
            piece = os.read(process.stdout.fileno(), _HELPER_BYTES)
            if not piece:
                try:
                    return process.wait(max(0.1, deadline - clock.monotonic())), output
                except subprocess.TimeoutExpired:
                    raise InvalidImage(f"{name} did not end") from None
            output += piece
    raise InvalidImage(f"{name} answered more than {_HELPER_BYTES} bytes")


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """End the helper with everything that it has started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
