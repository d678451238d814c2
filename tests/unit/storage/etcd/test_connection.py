from pathlib import Path

import pytest

from kedge.storage.etcd.client import EtcdClient
from kedge.storage.etcd.connection import EtcdConnection
from kedge.storage.store import StoreError
from kedge.testing.clock import FakeClock

MEMBERS = ("127.0.0.1:2379",)


def test_a_password_may_have_colons(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text("kedge:a:b\n")
    assert EtcdConnection(endpoints=MEMBERS, credentials=file).user() == ("kedge", "a:b")
    assert EtcdConnection(endpoints=MEMBERS).user() is None


@pytest.mark.parametrize("content", ["", "kedge", ":password", "kedge:one\ntwo"])
def test_other_files_are_refused_without_their_content(tmp_path: Path, content: str) -> None:
    file = tmp_path / "credentials"
    file.write_text(content)
    with pytest.raises(StoreError, match="write USER:PASSWORD in one line") as refused:
        EtcdConnection(endpoints=MEMBERS, credentials=file).user()
    assert "password" not in str(refused.value)


def test_a_missing_file_is_named_with_its_flag(tmp_path: Path) -> None:
    there = EtcdConnection(endpoints=MEMBERS, authority=tmp_path / "ca.crt")
    assert there.has_tls
    with pytest.raises(StoreError, match=r"ca.crt cannot be read: .*--etcd-cafile"):
        there.tls()


def test_a_certificate_needs_its_key(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="need each other"):
        EtcdConnection(endpoints=MEMBERS, certificate=tmp_path / "client.crt").tls()


def test_a_password_that_is_sent_in_clear_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    credentials, authority = tmp_path / "credentials", tmp_path / "ca.crt"
    credentials.write_text("kedge:secret-word")
    authority.write_text("")
    for protected in (
        EtcdConnection(endpoints=MEMBERS),
        EtcdConnection(endpoints=MEMBERS, credentials=credentials, authority=authority),
    ):
        EtcdClient(protected, FakeClock())
    assert caplog.text == ""
    EtcdClient(EtcdConnection(endpoints=MEMBERS, credentials=credentials), FakeClock())
    assert "password is sent in clear" in caplog.text
    assert "secret-word" not in caplog.text
