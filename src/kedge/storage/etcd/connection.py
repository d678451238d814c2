"""Which etcd to use, and how the store proves who it is."""

from pathlib import Path

import msgspec

from kedge.storage.store import StoreError


class EtcdConnection(msgspec.Struct, frozen=True, kw_only=True):
    """The members of an etcd cluster, and the files that identify both sides."""

    endpoints: tuple[str, ...]
    """HOST:PORT of one or more members."""
    authority: Path | None = None
    """The certificate authority of the members; with it, or with a certificate, TLS is used."""
    certificate: Path | None = None
    key: Path | None = None
    """The certificate of the client and its key."""
    credentials: Path | None = None
    """A file with USER:PASSWORD in one line."""

    @property
    def has_tls(self) -> bool:
        return self.authority is not None or self.certificate is not None

    @property
    def shows_password(self) -> bool:
        """Whether everybody between here and the members can read the password."""
        return self.credentials is not None and not self.has_tls

    def user(self) -> tuple[str, str] | None:
        """Return name and password; None without credentials. Raises StoreError."""
        if self.credentials is None:
            return None
        text = _read(self.credentials, "--etcd-credentials-file").decode(errors="replace")
        name, separator, password = text.strip().partition(":")
        if not separator or not name or "\n" in password:
            raise StoreError(
                f"{self.credentials} is not a file of credentials: write USER:PASSWORD in one line"
            )
        return name, password

    def tls(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """Return authority, key and certificate as gRPC wants them. Raises StoreError."""
        if (self.certificate is None) != (self.key is None):
            raise StoreError("--etcd-certfile and --etcd-keyfile need each other: set both")
        named = (
            (self.authority, "--etcd-cafile"),
            (self.key, "--etcd-keyfile"),
            (self.certificate, "--etcd-certfile"),
        )
        authority, key, certificate = (_read(path, flag) if path else None for path, flag in named)
        return authority, key, certificate


def _read(path: Path, flag: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}. Check {flag}") from error
