"""Why a server did not start, for the person who started it."""

import errno
from sqlite3 import OperationalError

from kedge.apiserver import pki
from kedge.apiserver.authentication import keys, token_file
from kedge.apiserver.config import ServerConfig
from kedge.apiserver.configuration_file import ConfigurationFileError
from kedge.storage.lockfile import StoreInUse
from kedge.storage.store import (
    DiskFull,
    KeyServiceError,
    RevisionCompacted,
    StoreError,
    StoreReplaced,
    StoreUnavailable,
    WriteOutcomeUnknown,
)

_PASSING = (
    StoreInUse
    | DiskFull
    | KeyServiceError
    | StoreUnavailable
    | StoreReplaced
    | RevisionCompacted
    | WriteOutcomeUnknown
)
"""Errors of the store that a server which starts anew may not meet: it reads all objects again."""

_NEEDS_REPAIR = (
    pki.AuthorityError | keys.SigningKeyError | token_file.TokenFileError | ConfigurationFileError
)
"""Errors that a retry does not mend."""


def explain(error: BaseException, config: ServerConfig) -> str:
    """Return the message for the user; empty if no user could have caused the error."""
    error = innermost(error)
    if isinstance(error, StoreError | _NEEDS_REPAIR):
        return str(error)
    if isinstance(error, OSError):
        return _explain_system(error, config)
    return ""


def is_permanent(error: BaseException) -> bool:
    """Return whether the error needs a repair, so that a retry would fail too. Lack of space and
    a port in use are temporary."""
    if isinstance(error, StoreError):
        # SQLite's errors for a full disk, files that cannot be opened, and a busy database.
        is_passing = isinstance(error, _PASSING) or isinstance(error.__cause__, OperationalError)
        return not is_passing
    return isinstance(error, _NEEDS_REPAIR)


def innermost(error: BaseException) -> BaseException:
    """Return the single error inside of nested exception groups."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _explain_system(error: OSError, config: ServerConfig) -> str:
    where = f"{config.host} port {config.port}"
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"{where} is in use by another program: stop that one, or choose another port"
                " with --port (0 means any free one)"
            )
        case errno.EACCES if error.filename is None:
            return f"this user may not listen on {where}: choose a port above 1023 with --port"
        case errno.EADDRNOTAVAIL:
            return f"{config.host} is not an address of this machine: choose another with --host"
        case _ if config.audit_log is not None and error.filename == str(config.audit_log):
            return (
                f"the audit log {error.filename} cannot be written: {error.strerror}. Choose"
                " another file with --audit-log-path"
            )
        case _ if error.filename is not None:
            return (
                f"{error.filename}: {error.strerror}. Make it accessible, or choose another"
                " directory with --state"
            )
        case _:
            return ""
