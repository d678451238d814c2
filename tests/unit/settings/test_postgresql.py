import argparse

import pytest

from kedge.settings.parse import is_elsewhere, store
from kedge.settings.postgresql import PostgresAddress, PostgresHost, postgresql_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (
            "postgresql://kedge@db:5433/clusters/dev",
            PostgresAddress((PostgresHost("db", 5433),), "kedge", "clusters", "dev"),
        ),
        (
            "postgresql://kedge@a,b.example:1/d",
            PostgresAddress(
                (PostgresHost("a", 5432), PostgresHost("b.example", 1)), "kedge", "d", "kedge"
            ),
        ),
        (
            "postgresql://k%40x@[::1]:5432/d/",
            PostgresAddress((PostgresHost("::1", 5432),), "k@x", "d"),
        ),
        (
            "postgresql://k@%2Frun%2Fpg:6000/d",
            PostgresAddress((PostgresHost("/run/pg", 6000),), "k", "d"),
        ),
        ("postgresql://k@/d", PostgresAddress((PostgresHost("/run/postgresql", 5432),), "k", "d")),
    ],
)
def test_an_address_has_servers_a_user_a_database_and_a_schema(
    text: str, address: PostgresAddress
) -> None:
    assert postgresql_address(text) == address
    assert store(text) == text
    assert is_elsewhere(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("postgresql://db/clusters", "names no user"),
        ("postgresql://@db/clusters", "names no user"),
        ("postgresql://k@db", "names no database"),
        ("postgresql://k@db/", "names no database"),
        ("postgresql://k@db:0/d", "not a server of PostgreSQL"),
        ("postgresql://k@db:99999/d", "not a server of PostgreSQL"),
        ("postgresql://k@a:b:1/d", "not a server of PostgreSQL"),
        ("postgresql://k@db/d?sslmode=require", "--postgresql-cafile"),
        ("postgresql://k@db/d/Big", "cannot be the schema"),
        ("postgresql://k@db/d/pg_toast", "cannot be the schema"),
        ('postgresql://k@db/d/a"; DROP', "cannot be the schema"),
        ("postgresql://k@db/d/" + "x" * 64, "cannot be the schema"),
    ],
)
def test_an_address_that_cannot_be_meant_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=complaint):
        store(text)


def test_a_password_in_the_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="--postgresql-password-file") as refused:
        store("postgresql://kedge:secret@db/clusters")
    assert "secret" not in str(refused.value)


def test_servers_are_printed_as_addresses_and_paths() -> None:
    hosts = (PostgresHost("::1", 1), PostgresHost("db", 2), PostgresHost("/run/pg", 3))
    assert [str(host) for host in hosts] == ["[::1]:1", "db:2", "/run/pg/.s.PGSQL.3"]
