"""Records of the credentials that have pulled an image."""

from pathlib import Path

from kedge.node.images.credentials import RegistryCredential
from kedge.node.images.pull_records import PullRecords

ME = RegistryCredential("me", "secret")
IMAGE = "sha256:" + "1" * 64


def test_only_the_credential_that_pulled_is_allowed(tmp_path: Path) -> None:
    records = PullRecords(tmp_path)
    records.add(IMAGE, "host/app", ME)
    assert records.allows(IMAGE, "host/app", [RegistryCredential("me", "other"), ME])
    assert not records.allows(IMAGE, "host/app", [RegistryCredential("me", "other")])
    assert not records.allows(IMAGE, "host/other", [ME])
    assert not records.allows(IMAGE.replace("1", "2"), "host/app", [ME])


def test_a_pull_without_credentials_allows_every_pod(tmp_path: Path) -> None:
    records = PullRecords(tmp_path)
    records.add(IMAGE, "host/app", None)
    assert records.allows(IMAGE, "host/app", [])


def test_records_hold_no_passwords_and_survive_a_restart(tmp_path: Path) -> None:
    PullRecords(tmp_path).add(IMAGE, "host/app", ME)
    assert PullRecords(tmp_path).allows(IMAGE, "host/app", [ME])
    assert not any(b"secret" in path.read_bytes() for path in tmp_path.iterdir())


def test_a_damaged_record_allows_no_pod(tmp_path: Path) -> None:
    records = PullRecords(tmp_path)
    records.add(IMAGE, "host/app", None)
    next(tmp_path.glob("1*.json")).write_bytes(b"{")
    assert not records.allows(IMAGE, "host/app", [ME])


def test_an_image_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    records = PullRecords(tmp_path)
    records.add(IMAGE, "host/app", ME)
    records.remove(IMAGE)
    records.remove(IMAGE)
    assert not records.allows(IMAGE, "host/app", [ME])
