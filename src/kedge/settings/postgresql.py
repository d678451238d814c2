"""The address of a PostgreSQL database with the objects of a cluster."""

import argparse
import re
from typing import Final, NamedTuple
from urllib.parse import unquote

from kedge.settings.parse import POSTGRESQL, POSTGRESQL_FORM

DEFAULT_SCHEMA: Final = "kedge"
DEFAULT_PORT: Final = 5432
SOCKETS: Final = "/run/postgresql"
"""The directory of the socket of a server on this machine, where distributions put it."""
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_-]{0,62}")
_HOST: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:/\[\]]*)(:(?P<port>[0-9]+))?")


class PostgresHost(NamedTuple):
    """One server, by its name or by the directory of its socket."""

    host: str
    port: int

    @property
    def is_local(self) -> bool:
        """Whether the server is reached through a socket of this machine."""
        return self.host.startswith("/")

    def __str__(self) -> str:
        if self.is_local:
            return f"{self.host}/.s.PGSQL.{self.port}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class PostgresAddress(NamedTuple):
    """The servers that may be the primary one, and the place of the objects on it."""

    hosts: tuple[PostgresHost, ...]
    user: str
    database: str
    schema: str = DEFAULT_SCHEMA

    @property
    def place(self) -> str:
        """The schema, for messages."""
        return f'schema "{self.schema}" of database "{self.database}"'


def postgresql_address(value: str) -> PostgresAddress:
    """Return the parts of the address of a PostgreSQL; ArgumentTypeError if one is missing."""
    servers, _, place = value.removeprefix(POSTGRESQL).partition("/")
    user, separator, hosts = servers.rpartition("@")
    if ":" in user:
        # Not repeated in the message: it has a password.
        raise argparse.ArgumentTypeError(
            "the address of PostgreSQL must not have a password: all users of the machine see the"
            " arguments of processes. Name a file with it: --postgresql-password-file"
        )
    if not separator or not user:
        raise argparse.ArgumentTypeError(f'"{value}" names no user: write {POSTGRESQL_FORM}')
    if "?" in place:
        raise argparse.ArgumentTypeError(
            f'"{value}" has parameters, which kedge does not read: write {POSTGRESQL_FORM}, and'
            " name certificates with --postgresql-cafile, --postgresql-certfile and"
            " --postgresql-keyfile"
        )
    database, _, schema = place.partition("/")
    if not database:
        raise argparse.ArgumentTypeError(f'"{value}" names no database: write {POSTGRESQL_FORM}')
    return PostgresAddress(
        tuple(map(_host, hosts.split(","))),
        unquote(user),
        unquote(database),
        _schema(unquote(schema) or DEFAULT_SCHEMA),
    )


def _host(text: str) -> PostgresHost:
    found = _HOST.fullmatch(text)
    port = int(found["port"] or DEFAULT_PORT) if found else 0
    if found is None or not 0 < port < 65536:
        raise argparse.ArgumentTypeError(
            f'"{text}" is not a server of PostgreSQL: write HOST:PORT, such as 127.0.0.1:5432, or'
            " the directory of its socket, such as %2Frun%2Fpostgresql"
        )
    return PostgresHost(unquote(found["host"]).strip("[]") or SOCKETS, port)


def _schema(text: str) -> str:
    if not _SCHEMA.fullmatch(text) or text.startswith("pg_") or text == "information_schema":
        raise argparse.ArgumentTypeError(
            f'"{text}" cannot be the schema of a cluster: write small letters, digits, "_" and "-",'
            ' at most 63, not "pg_" at the beginning'
        )
    return text
