"""Records of the credentials that have pulled each image, so that a pod uses only images that it
could pull itself.

Without them, `imagePullPolicy: IfNotPresent` gives a tenant every private image that another
tenant's pod has pulled on the node. The kubelet checks the same since 1.33 (KEP-2535).
"""

import contextlib
import hashlib
import secrets
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import msgspec

from kedge.machinery import atomic
from kedge.node.images.credentials import RegistryCredential

EVERYBODY: Final = "*"
"""Stands for a pull without credentials: every pod may use a public image."""
_MOST: Final = 1000
"""Credentials that are kept for one repository of one image. Dropping the oldest costs their owners
one more request to the registry."""


class PullRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The credentials that have pulled one image: `pulls/DIGEST.json`."""

    credentials: Mapping[str, tuple[str, ...]] = {}
    """Digests of credentials, or EVERYBODY, by repository."""


class PullRecords:
    """The records in one directory. The caller prevents two writes at once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def is_known(self, image: str) -> bool:
        """Return whether the node has pulled the image."""
        return self._path(image).exists()

    def allows(
        self, image: str, repository: str, credentials: Collection[RegistryCredential | None]
    ) -> bool:
        """Return whether one of the credentials has pulled the image from this repository
        before."""
        known = self._read(image).credentials.get(repository, ())
        return EVERYBODY in known or any(self._digest(each) in known for each in credentials)

    def add(self, image: str, repository: str, credential: RegistryCredential | None) -> None:
        """Record that a registry has served the image to this credential, or without one."""
        record, digest = self._read(image), self._digest(credential)
        known = record.credentials.get(repository, ())
        if digest in known:
            return
        credentials = {**record.credentials, repository: (*known, digest)[-_MOST:]}
        content = msgspec.json.encode(PullRecord(credentials=credentials))
        atomic.write(self._path(image), content)

    def remove(self, image: str) -> None:
        """Delete the record of a deleted image."""
        self._path(image).unlink(missing_ok=True)

    def _read(self, image: str) -> PullRecord:
        # An unreadable record costs one more request to the registry.
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode(self._path(image).read_bytes(), type=PullRecord)
        return PullRecord()

    def _path(self, image: str) -> Path:
        return self._directory / f"{image.partition(':')[2]}.json"

    def _digest(self, credential: RegistryCredential | None) -> str:
        """Return a digest with the directory's own salt, so that a record does not reveal
        passwords."""
        if credential is None:
            return EVERYBODY
        known: tuple[str, ...] = (credential.username, credential.password)
        if credential.identity_token:
            known += (credential.identity_token,)
        text = msgspec.json.encode(known)
        return hashlib.blake2b(text, key=self._salt(), digest_size=32).hexdigest()

    def _salt(self) -> bytes:
        path = self._directory / "salt"
        try:
            return path.read_bytes()
        except FileNotFoundError:
            atomic.write(path, secrets.token_bytes(32))
            return path.read_bytes()
