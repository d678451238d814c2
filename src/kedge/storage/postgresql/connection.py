"""Which PostgreSQL to use, and how the store proves who it is."""

import ssl
from pathlib import Path

import msgspec

from kedge.settings.postgresql import PostgresAddress
from kedge.storage.store import StoreError


class PostgresConnection(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a database, and the files that identify both sides."""

    address: PostgresAddress
    authority: Path | None = None
    """The certificate authority of the servers; with it, or with a certificate, TLS is used."""
    certificate: Path | None = None
    key: Path | None = None
    """The certificate of the client and its key."""
    password_file: Path | None = None

    @property
    def has_tls(self) -> bool:
        return self.authority is not None or self.certificate is not None

    @property
    def shows_objects(self) -> bool:
        """Whether everybody between here and a server can read the objects."""
        return not self.has_tls and any(
            not host.is_local and not _is_loopback(host.host) for host in self.address.hosts
        )

    def password(self) -> str:
        """Return the password as the file has it now; empty without one. Raises StoreError."""
        if self.password_file is None:
            return ""
        try:
            return self.password_file.read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise _unreadable(self.password_file, "--postgresql-password-file", error) from error

    def tls(self) -> ssl.SSLContext | None:
        """Return what checks the servers' certificates; None without TLS. Raises StoreError."""
        if (self.certificate is None) != (self.key is None):
            raise StoreError(
                "--postgresql-certfile and --postgresql-keyfile need each other: set both"
            )
        if not self.has_tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.authority)
        except (OSError, ssl.SSLError) as error:
            raise _unreadable(self.authority, "--postgresql-cafile", error) from error
        if self.certificate is not None:
            try:
                context.load_cert_chain(self.certificate, self.key)
            except (OSError, ssl.SSLError) as error:
                raise _unreadable(self.certificate, "--postgresql-certfile", error) from error
        return context


def _is_loopback(host: str) -> bool:
    return host == "localhost" or host == "::1" or host.startswith("127.")


def _unreadable(path: Path | None, flag: str, error: Exception) -> StoreError:
    why = getattr(error, "strerror", "") or str(error)
    return StoreError(f"{path} cannot be read: {why}. Check {flag}")
