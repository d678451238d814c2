"""Credentials for registries, from pull secrets in the format of docker's configuration."""

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, Protocol

import msgspec

from kedge.api.core_v1.secret import Secret
from kedge.node.images.oci import InvalidImage
from kedge.node.images.reference import HUB

_JSON: Final = ("kubernetes.io/dockerconfigjson", ".dockerconfigjson")
_OLD: Final = ("kubernetes.io/dockercfg", ".dockercfg")
_HUB_OF_OLD: Final = "index.docker.io"


class RegistryCredential(msgspec.Struct, frozen=True):
    """A user name and password for a registry."""

    username: str
    password: str
    identity_token: str = ""
    """A refresh token, which some registries give out in place of a password."""

    @property
    def basic(self) -> str:
        """Return the value of an Authorization header."""
        text = f"{self.username}:{self.password}".encode()
        return f"Basic {base64.b64encode(text).decode()}"


class CredentialSource(Protocol):
    """Finds credentials for repositories."""

    def find(self, repository: str) -> Sequence[RegistryCredential]:
        """Return the credentials to try for a repository, in order."""
        ...


class FoundCredentials(msgspec.Struct, frozen=True):
    """The credentials that were found for some repositories. Fulfils CredentialSource."""

    by_repository: Mapping[str, tuple[RegistryCredential, ...]] = {}

    def find(self, repository: str) -> tuple[RegistryCredential, ...]:
        return self.by_repository.get(repository, ())

    @property
    def all(self) -> list[RegistryCredential]:
        return [each for found in self.by_repository.values() for each in found]

    def followed_by(self, other: "FoundCredentials") -> "FoundCredentials":
        """Return these credentials, and those of others after them."""
        names = {*self.by_repository, *other.by_repository}
        return FoundCredentials({name: self.find(name) + other.find(name) for name in names})


def found(source: CredentialSource, repositories: Iterable[str]) -> FoundCredentials:
    """Return the credentials of a source for these repositories."""
    return FoundCredentials({each: tuple(source.find(each)) for each in repositories})


class RegistryAuth(msgspec.Struct, frozen=True):
    """An entry of docker's configuration."""

    username: str | None = None
    password: str | None = None
    auth: str | None = None
    identitytoken: str | None = None


class _DockerConfig(msgspec.Struct, frozen=True):
    auths: Mapping[str, RegistryAuth] | None = None


class RegistryKeyring(msgspec.Struct, frozen=True):
    """Credentials by registry or repository prefix."""

    entries: tuple[tuple[str, RegistryCredential], ...] = ()

    def find(self, repository: str) -> list[RegistryCredential]:
        """Return the credentials to try for a repository, the most specific first."""
        ordered = sorted(self.entries, key=lambda entry: entry[0], reverse=True)
        fitting = [credential for place, credential in ordered if _fits(place, repository)]
        if not fitting and repository.startswith(f"{HUB}/"):
            fitting = [credential for place, credential in ordered if place == _HUB_OF_OLD]
        return fitting


def keyring(secrets: Iterable[Secret]) -> RegistryKeyring:
    """Return the credentials of all secrets; secrets of other types are ignored."""
    entries: list[tuple[str, RegistryCredential]] = []
    for secret in secrets:
        for place, entry in _entries(secret).items():
            if known := credential(entry, _unreadable(secret)):
                entries.append((registry_place(place), known))
    return RegistryKeyring(tuple(entries))


def _entries(secret: Secret) -> Mapping[str, RegistryAuth]:
    try:
        if secret.type == _JSON[0] and _JSON[1] in secret.data:
            content = base64.b64decode(secret.data[_JSON[1]])
            return msgspec.json.decode(content, type=_DockerConfig).auths or {}
        if secret.type == _OLD[0] and _OLD[1] in secret.data:
            content = base64.b64decode(secret.data[_OLD[1]])
            return msgspec.json.decode(content, type=dict[str, RegistryAuth])
    except (msgspec.MsgspecError, ValueError):
        # A more detailed message would quote the secret.
        raise _unreadable(secret) from None
    return {}


def credential(entry: RegistryAuth, unreadable: InvalidImage) -> RegistryCredential | None:
    """Return the credential of an entry; None if it is empty."""
    identity = entry.identitytoken or ""
    if entry.auth:
        try:
            text = base64.b64decode(entry.auth).decode()
        except (binascii.Error, ValueError):
            raise unreadable from None
        username, colon, password = text.partition(":")
        if not colon:
            raise unreadable
        # Docker's own client pads passwords with zeros.
        return RegistryCredential(username, password.rstrip("\0"), identity)
    if entry.username or entry.password or identity:
        return RegistryCredential(entry.username or "", entry.password or "", identity)
    return None


def _unreadable(secret: Secret) -> InvalidImage:
    return InvalidImage(f'the pull secret "{secret.metadata.name}" cannot be read')


def registry_place(text: str) -> str:
    """Return a registry's name without scheme and path: `https://index.docker.io/v1/` is
    `index.docker.io`."""
    place = text.removeprefix("https://").removeprefix("http://")
    host, slash, path = place.partition("/")
    for version in ("v1/", "v2/"):
        path = path.removeprefix(version)
    return host + (slash + path if path else "")


def _fits(place: str, repository: str) -> bool:
    host, _, path = place.partition("/")
    its_host, _, its_path = repository.partition("/")
    return _fits_host(_split(host), _split(its_host)) and its_path.startswith(path)


def _fits_host(pattern: tuple[Sequence[str], str], host: tuple[Sequence[str], str]) -> bool:
    """Return whether host names match label by label; a star matches within one label."""
    labels, port = pattern
    its_labels, its_port = host
    return (
        port == its_port
        and len(labels) == len(its_labels)
        and all(map(fnmatchcase, its_labels, labels))
    )


def _split(host: str) -> tuple[Sequence[str], str]:
    name, colon, port = host.rpartition(":")
    return (name.split("."), port) if colon else (host.split("."), "")
