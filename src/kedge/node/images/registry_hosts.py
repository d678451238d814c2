"""The hosts that an image is pulled from: its mirrors, then its registry."""

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from kedge.machinery.proxies import ProxyRules
from kedge.node.images.reference import HUB, ImageReference
from kedge.settings.registries import ANY, RegistryAuthority, RegistryMirror

HUB_HOST: Final = "registry-1.docker.io"
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")


class RegistryHost(msgspec.Struct, frozen=True):
    """One place where the repository of an image may be."""

    urls: tuple[str, ...]
    """Where it listens. A later URL is tried if nothing answers at the one before."""
    path: str
    """The path of the repository there."""
    repository: str
    """The repository as credentials name it."""
    namespace: str = ""
    """Of a mirror: the registry whose image is wanted."""
    is_verified: bool = True
    """Whether the certificate must be valid."""
    authority: Path | None = None
    """The file of certificates to trust instead of the system's."""

    def __str__(self) -> str:
        return self.urls[0]


class RegistrySettings(msgspec.Struct, frozen=True):
    """How registries are reached; see the settings of kedge.node.config."""

    mirrors: tuple[RegistryMirror, ...] = ()
    insecure: tuple[str, ...] = ()
    authorities: tuple[RegistryAuthority, ...] = ()
    proxies: ProxyRules = ProxyRules()

    def hosts(self, name: ImageReference) -> list[RegistryHost]:
        """Return the hosts to try for an image, in order: its mirrors, then its registry."""
        fitting = [each for each in self.mirrors if each.registry in (ANY, name.domain)]
        mirrors = [self._mirror(each, name) for each in fitting]
        return [each for each in mirrors if each is not None] + [self._registry(name)]

    def _mirror(self, mirror: RegistryMirror, name: ImageReference) -> RegistryHost | None:
        parts = urlsplit(mirror.url)
        host = parts.netloc.lower()
        if host == name.domain:
            return None  # the registry itself comes last anyway
        path = f"{parts.path}/{name.path}".lstrip("/")
        is_verified = host not in self.insecure
        return RegistryHost(
            urls=(f"{parts.scheme}://{host}",),
            path=path,
            repository=f"{host}/{path}",
            namespace=name.domain,
            is_verified=is_verified,
            authority=self.authority(host),
        )

    def _registry(self, name: ImageReference) -> RegistryHost:
        host = HUB_HOST if name.domain == HUB else name.domain
        authority = self.authority(name.domain)
        # As in Docker, a registry on this machine needs no certificate that is valid.
        is_local = urlsplit(f"//{host}").hostname in _LOCAL and authority is None
        is_verified = not is_local and name.domain not in self.insecure
        secure, plain = f"https://{host}", f"http://{host}"
        return RegistryHost(
            urls=(secure,) if is_verified else (secure, plain),
            path=name.path,
            repository=name.repository,
            is_verified=is_verified,
            authority=authority,
        )

    def authority(self, registry: str) -> Path | None:
        """Return the file of certificates for a registry, HOST or HOST:PORT."""
        found = (each.file for each in self.authorities if each.registry == registry)
        return next(found, None)

    def described(self) -> list[str]:
        """Return the settings that differ from the default, for the log and `kedge status`."""
        plain = [each for each in self.mirrors if each.url.startswith("http:")]
        return [
            *(f"mirror of {each.registry}: {each.url}" for each in self.mirrors),
            *(f"INSECURE mirror: {each.url} (plain HTTP)" for each in plain),
            *(f"INSECURE registry: {each} (not verified, or plain HTTP)" for each in self.insecure),
            *(f"authority of {each.registry}: {each.file}" for each in self.authorities),
            *self.proxies.described(),
        ]
