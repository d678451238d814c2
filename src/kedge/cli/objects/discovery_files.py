"""Files that keep what a server serves between two commands.

A file is used only if the server says by its ETag that nothing has changed, so it is never out of
date. A damaged or foreign file costs one answer of the server.
"""

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Final

from kedge.client.login import Login

_LARGEST: Final = 16 << 20


class DiscoveryFiles:
    """Fulfils KnownPages for one server."""

    def __init__(self, directory: Path, login: Login) -> None:
        """`directory` is that of this user's caches."""
        # The answers of a server depend on nothing else: every user may see all of them.
        identity = f"{login.server} {login.server_name} ".encode() + login.ca_pem
        self._directory = directory / "discovery"
        self._name = hashlib.sha256(identity).hexdigest()[:32]

    def load(self, root: str) -> tuple[str, bytes] | None:
        try:
            descriptor = os.open(self._path(root), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return None
        with open(descriptor, "rb") as file:
            # Names in this file decide which paths are asked for, so another user must not have
            # written it.
            if os.fstat(descriptor).st_uid != os.geteuid():
                return None
            etag, _, body = file.read(_LARGEST).partition(b"\n")
            return (etag.decode("latin-1"), body) if body.endswith(b"}") else None

    def save(self, root: str, etag: str, body: bytes) -> None:
        path = self._path(root)
        other = path.with_suffix(f".{os.getpid()}")
        # To keep it saves time only: a full disk or a read-only home directory is no failure.
        with contextlib.suppress(OSError, UnicodeEncodeError):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            other.write_bytes(etag.encode("latin-1") + b"\n" + body.rstrip())
            other.replace(path)

    def _path(self, root: str) -> Path:
        return self._directory / f"{self._name}{root.replace('/', '-')}"
