"""The administrator's token: a secret made once per cluster."""

import secrets
from pathlib import Path

from kedge.machinery import atomic, reserve_files


def ensure(path: Path) -> str:
    """The token in the file, which is made if it is not there, and is for its owner's eyes only."""
    try:
        token = path.read_text(encoding="ascii").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        token = ""
    if not token.isprintable() or not token:
        # A crash may leave zeros in the file; they are not a token.
        token = secrets.token_urlsafe(32)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = f"{token}\n".encode()
        reserve_files.with_room(path.parent, lambda: atomic.write(path, content, mode=0o600))
    elif path.stat().st_mode & 0o077:
        path.chmod(0o600)
    return token
