"""A PostgreSQL with TLS for tests, and certificates of its users."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from kedge.apiserver import pki
from kedge.machinery.clock import SystemClock
from kedge.testing.postgresql_process import PostgresProcess


@contextmanager
def protected_server(directory: Path) -> Iterator[PostgresProcess]:
    """Run a server whose certificate is of an authority in this directory. It listens at 127.0.0.2,
    too, which its certificate does not name."""
    pki.ensure(directory, ["127.0.0.1"])
    server = PostgresProcess(
        Path(tempfile.mkdtemp(prefix="kedge-postgresql-")),
        "fsync=off",
        "ssl=on",
        "ssl_ca_file=ca.crt",
        "password_encryption=scram-sha-256",
        "listen_addresses=127.0.0.1,127.0.0.2",
    )
    try:
        server.create()
        for name in ("ca.crt", "server.crt", "server.key"):
            shutil.copy(directory / name, server.data / name)
            shutil.chown(server.data / name, server.data.owner(), server.data.group())
            (server.data / name).chmod(0o600)
        server.start()
        yield server
    finally:
        server.remove()


def admit(server: PostgresProcess, method: str) -> None:
    """Let users in with TLS only, and by this method."""
    rules = f"hostssl all all 127.0.0.0/8 {method}\nlocal all all trust\n"
    (server.data / "pg_hba.conf").write_text(rules)
    server.reload()


def client_certificate(authority: Path, user: str, now: datetime | None = None) -> Path:
    """Make a certificate of a user, and its key; returns their path without the suffix."""
    stem = f"client-{user}" if now is None else f"client-{user}-{now:%Y%m%d}"
    name = pki._name(user)
    made = pki._issued(authority, name, ("clientAuth",), (), now or SystemClock().now())
    pki._save(authority, stem, made)
    return authority / stem
