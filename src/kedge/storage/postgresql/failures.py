"""Errors of PostgreSQL and of the connection to it, by what the store can do about them."""

from enum import Enum, auto
from typing import Final, Self

from kedge.storage.store import (
    DiskFull,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
    ValueTooLarge,
    WriteOutcomeUnknown,
)


class PostgresFailureKind(Enum):
    """The reactions of the store to an error."""

    WITHOUT_EFFECT = auto()
    """The request had no effect: repeat it, perhaps at another server."""
    NO_CONNECTION_LEFT = auto()
    """The server has as many connections as it allows. Nothing was sent."""
    UNKNOWN = auto()
    """The server did not say whether the request had an effect."""
    FULL = auto()
    TOO_LARGE = auto()
    DENIED = auto()
    """The user, its password or its certificate is refused."""
    UNVERIFIED = auto()
    """The certificate of the server is not trusted."""
    REFUSED_CERTIFICATE = auto()
    """The server does not trust the certificate of the client."""
    UNENCRYPTED = auto()
    """The server takes connections with TLS only."""
    NO_DATABASE = auto()
    FORBIDDEN = auto()
    """The user lacks a privilege."""
    GONE = auto()
    """The schema, or a part of it, does not exist any more."""
    DAMAGED = auto()
    OTHER = auto()


_PASSING: Final = (
    PostgresFailureKind.WITHOUT_EFFECT,
    PostgresFailureKind.NO_CONNECTION_LEFT,
    PostgresFailureKind.UNKNOWN,
)


class PostgresFailure(StoreError):
    """A request that failed."""

    def __init__(self, kind: PostgresFailureKind, server: str, text: str) -> None:
        super().__init__(f"postgresql at {server}: {text}")
        self.kind = kind
        self.server = server
        self.text = text

    @property
    def is_passing(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind in _PASSING

    def without_effect(self) -> Self:
        """Return the failure of a request that has no effect, whether it was carried out or not."""
        if self.kind is not PostgresFailureKind.UNKNOWN:
            return self
        return type(self)(PostgresFailureKind.WITHOUT_EFFECT, self.server, self.text)


_STATES: Final = {
    "53100": PostgresFailureKind.FULL,
    "53300": PostgresFailureKind.NO_CONNECTION_LEFT,
    "54000": PostgresFailureKind.TOO_LARGE,
    "3D000": PostgresFailureKind.NO_DATABASE,
    "42501": PostgresFailureKind.FORBIDDEN,
    "3F000": PostgresFailureKind.GONE,
    "42P01": PostgresFailureKind.GONE,
    "42883": PostgresFailureKind.GONE,
    "XX001": PostgresFailureKind.DAMAGED,
    "XX002": PostgresFailureKind.DAMAGED,
    # A server that became a standby, or whose administrator forbade writes.
    "25006": PostgresFailureKind.WITHOUT_EFFECT,
    # A server that starts, stops, or recovers from a crash refuses connections.
    "57P03": PostgresFailureKind.WITHOUT_EFFECT,
    "55P03": PostgresFailureKind.WITHOUT_EFFECT,
    "55006": PostgresFailureKind.WITHOUT_EFFECT,
    # Without the privilege to wait: out of memory, out of locks, a limit of the server's.
    "53000": PostgresFailureKind.WITHOUT_EFFECT,
    "53200": PostgresFailureKind.WITHOUT_EFFECT,
}
_CLASSES: Final = {
    "08": PostgresFailureKind.UNKNOWN,
    "28": PostgresFailureKind.DENIED,
    "40": PostgresFailureKind.WITHOUT_EFFECT,
    # The connection was ended, in the middle of a request or not; a request was cancelled.
    "57": PostgresFailureKind.UNKNOWN,
    "58": PostgresFailureKind.OTHER,
}


def failure_kind(state: str, text: str) -> PostgresFailureKind:
    """Return the kind of an error by its SQLSTATE and its text."""
    if state == "28000" and ("no encryption" in text or "SSL off" in text):
        return PostgresFailureKind.UNENCRYPTED
    if state == "58030" and "No space left" in text:
        return PostgresFailureKind.FULL
    return _STATES.get(state) or _CLASSES.get(state[:2], PostgresFailureKind.OTHER)


def store_error(failure: PostgresFailure, size: int = 0) -> StoreError:
    """Return an error as users of the store see it; `size` is that of a value to be written."""
    where, text = f"postgresql at {failure.server}", failure.text
    match failure.kind:
        case PostgresFailureKind.WITHOUT_EFFECT:
            return StoreUnavailable(
                f'{where} does not answer: {text}. Check it with "pg_isready" and its log, and'
                " start it if it is down"
            )
        case PostgresFailureKind.NO_CONNECTION_LEFT:
            return StoreUnavailable(
                f"{where} has no connection left: {text}. A server of kedge needs four: raise"
                ' max_connections, or the limit of the user ("ALTER ROLE ... CONNECTION LIMIT")'
            )
        case PostgresFailureKind.UNKNOWN:
            return WriteOutcomeUnknown(
                f"{where} did not confirm the write: {text}. Read the object to see whether it"
                " happened"
            )
        case PostgresFailureKind.FULL:
            return DiskFull(
                f"{where} has no space on its disk: {text}. Make space there; old versions of"
                " objects are deleted after five minutes, and VACUUM makes their space usable"
            )
        case PostgresFailureKind.TOO_LARGE:
            return ValueTooLarge(f"{where} does not take an object of {size} bytes: {text}")
        case PostgresFailureKind.DENIED:
            return StoreError(
                f"{where} refuses the user: {text}. Check the user in --store, the files of"
                " --postgresql-password-file and --postgresql-certfile, and pg_hba.conf of the"
                " server"
            )
        case PostgresFailureKind.UNVERIFIED:
            return StoreError(
                f"{where} is not trusted: {text}. Check that --postgresql-cafile is its certificate"
                " authority, and that its certificate has the name in --store"
            )
        case PostgresFailureKind.REFUSED_CERTIFICATE:
            return StoreError(
                f"{where} refuses the certificate of --postgresql-certfile: {text}. Check that it"
                " has not expired, and is signed by an authority in ssl_ca_file of the server"
            )
        case PostgresFailureKind.UNENCRYPTED:
            return StoreError(
                f"{where} takes connections with TLS only: {text}. Name its certificate authority"
                " with --postgresql-cafile"
            )
        case PostgresFailureKind.NO_DATABASE:
            return StoreError(
                f'{where}: {text}. Create it with "createdb", with the user in --store as its owner'
            )
        case PostgresFailureKind.FORBIDDEN:
            return StoreError(
                f"{where}: {text}. The user in --store must own the schema: create it with"
                ' "CREATE SCHEMA name AUTHORIZATION user", or let the user create it with'
                ' "GRANT CREATE ON DATABASE name TO user"'
            )
        case PostgresFailureKind.DAMAGED:
            return StoreDamaged(
                f"{where} reports damaged data: {text}. Restore a backup of the database"
            )
        case _:
            return StoreError(str(failure))
