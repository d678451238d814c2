"""Makes keys and certificates in a process that ends afterwards.

The cryptography library takes 13 MB and an idle server has no other use for it
(docs/decisions/0072-memory-of-an-idle-cluster.md).
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from kedge.apiserver.authentication.keys import SigningKey

_LIBRARY: Final = "cryptography"
_SECONDS: Final = 30.0
"""How long to wait for the process: a machine may be so busy that a start takes seconds."""


def make_signing_key(directory: Path) -> None:
    """See that the directory has the key that signs tokens. Raises OSError and SigningKeyError."""
    if not _is_done_elsewhere("signing-key", directory):
        SigningKey(directory).prepare()


def ensure_serving(
    directory: Path, node: str, hosts: Sequence[str], theirs: Path, now: datetime
) -> None:
    """Do what `pki.ensure_serving` does. Raises OSError and ValueError."""
    # Not above: the process that makes a key has no use for it.
    from kedge.apiserver import pki

    if pki.is_serving(theirs, hosts, now):
        return
    if not _is_done_elsewhere("serving", directory, node, theirs, now.isoformat(), *hosts):
        pki.ensure_serving(directory, node, hosts, theirs, now)


def _is_done_elsewhere(work: str, *arguments: object) -> bool:
    """Return whether another process has done it.

    If it fails, this process tries, too, so that the caller gets the error. If the library is
    loaded here already, nothing is saved by another process.
    """
    if _LIBRARY in sys.modules:
        return False
    words = [sys.executable, "-P", "-m", __name__, work, *map(str, arguments)]
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _make_key(directory: str) -> None:
    SigningKey(Path(directory)).prepare()


def _certify(directory: str, node: str, theirs: str, now: str, *hosts: str) -> None:
    from kedge.apiserver import pki

    pki.ensure_serving(Path(directory), node, hosts, Path(theirs), datetime.fromisoformat(now))


_WORK: Final[Mapping[str, Callable[..., None]]] = {"signing-key": _make_key, "serving": _certify}


def main(arguments: Sequence[str]) -> None:
    """Do the work that the first argument names."""
    # The server and its nodes, which start at the same time, come first.
    os.nice(10)
    work, *rest = arguments
    _WORK[work](*rest)


if __name__ == "__main__":
    main(sys.argv[1:])
