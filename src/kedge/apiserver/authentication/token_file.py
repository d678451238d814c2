"""A file of tokens in upstream's form: lines of `token,user name,user uid[,"group,group"]`."""

import logging
from pathlib import Path

from kedge.apiserver.request import User

log = logging.getLogger(__name__)


class TokenFileError(Exception):
    """The file cannot be read as a list of tokens; the message quotes none of them."""


def read(path: Path) -> dict[str, User]:
    """The users in the file, by token."""
    # Not above: few servers have such a file.
    import csv

    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file, strict=True))
    except OSError as error:
        raise TokenFileError(f"cannot read token file '{path}': {error.strerror}") from error
    except (csv.Error, UnicodeDecodeError) as error:
        # The error of the reader may quote what it has read.
        raise TokenFileError(f"token file '{path}' is no CSV file") from error
    users: dict[str, User] = {}
    for number, row in enumerate(filter(None, rows), 1):
        if len(row) < 3:
            raise TokenFileError(
                f"token file '{path}' must have at least 3 columns"
                f" (token, user name, user uid), found {len(row)} in record {number}"
            )
        token, name, uid, *more = row
        if not token:
            log.warning("token file has an empty token file=%s record=%d", path, number)
            continue
        if token in users:
            log.warning("token file has a token twice file=%s record=%d", path, number)
        groups = more[0].split(",") if more else ()
        users[token] = User(name, tuple(filter(None, groups)), uid)
    return users
