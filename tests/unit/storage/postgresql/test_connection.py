from pathlib import Path

import pytest

from kedge.settings.postgresql import postgresql_address
from kedge.storage.postgresql.connection import PostgresConnection
from kedge.storage.store import StoreError

REMOTE = postgresql_address("postgresql://k@db.example/d")


def test_the_password_is_what_the_file_has_now(tmp_path: Path) -> None:
    file = tmp_path / "password"
    known = PostgresConnection(address=REMOTE, password_file=file)
    file.write_text("one\n")
    assert known.password() == "one"
    file.write_text("t wo\r\n")
    assert known.password() == "t wo"
    assert PostgresConnection(address=REMOTE).password() == ""


def test_files_that_cannot_be_read_are_named_with_their_setting(tmp_path: Path) -> None:
    missing, text = tmp_path / "missing", tmp_path / "text"
    text.write_text("no certificate")
    with pytest.raises(StoreError, match=r"missing cannot be read.*--postgresql-password-file"):
        PostgresConnection(address=REMOTE, password_file=missing).password()
    for file in (missing, text):
        with pytest.raises(StoreError, match="--postgresql-cafile"):
            PostgresConnection(address=REMOTE, authority=file).tls()
        with pytest.raises(StoreError, match="--postgresql-certfile"):
            PostgresConnection(address=REMOTE, certificate=file, key=file).tls()
    with pytest.raises(StoreError, match="need each other"):
        PostgresConnection(address=REMOTE, certificate=text).tls()


@pytest.mark.parametrize(
    ("host", "shows"),
    [("db.example", True), ("localhost", False), ("127.0.0.1", False), ("%2Frun", False)],
)
def test_objects_are_sent_in_clear_to_other_machines_only(host: str, shows: bool) -> None:
    address = postgresql_address(f"postgresql://k@{host}/d")
    assert PostgresConnection(address=address).shows_objects is shows
    with_tls = PostgresConnection(address=address, authority=Path("ca.crt"))
    assert with_tls.shows_objects is False
