"""Users from client certificates, made with the library and read as the ssl module shows them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kedge.apiserver.authentication.certificates import UID, ClientCertificates, user_of
from kedge.apiserver.authentication.refusals import CredentialRefused
from kedge.apiserver.request import User
from kedge.testing.clock import FakeClock

ENDS = "Jan  1 00:01:00 2030 GMT"


def certificate(*subject: tuple[str, str], **more: Any) -> dict[str, Any]:
    parts = tuple((pair,) for pair in subject)
    return {"subject": parts, "serialNumber": "01", "notAfter": ENDS, **more}


def test_every_organization_is_a_group() -> None:
    given = certificate(
        ("countryName", "IS"),
        ("organizationName", "devs"),
        ("organizationName", "ops"),
        ("commonName", "jane"),
    )
    assert user_of(given) == User("jane", ("devs", "ops"))


def test_several_values_in_one_part_of_the_name_count_all() -> None:
    given = certificate() | {
        "subject": (
            (("organizationName", "devs"), ("organizationName", "ops")),
            (("commonName", "j"),),
        )
    }
    assert user_of(given) == User("j", ("devs", "ops"))


def test_the_last_common_name_counts() -> None:
    assert user_of(certificate(("commonName", "old"), ("commonName", "new"))) == User("new")


def test_the_hash_of_the_certificate_identifies_the_credential() -> None:
    user = user_of(certificate(("commonName", "jane"), sha256="ab12"))
    assert user is not None
    assert user.extra == (("authentication.kubernetes.io/credential-id", ("X509SHA256=ab12",)),)


def test_a_uid_may_be_part_of_the_name() -> None:
    assert user_of(certificate(("commonName", "jane"), (UID, "7"))) == User("jane", (), "7")
    with pytest.raises(CredentialRefused):
        user_of(certificate(("commonName", "jane"), (UID, "7"), (UID, "8")))
    with pytest.raises(CredentialRefused):
        user_of(certificate(("commonName", "jane"), (UID, "")))


@pytest.mark.parametrize(
    "subject", [(), (("organizationName", "system:masters"),), (("commonName", ""),)]
)
def test_without_a_common_name_it_is_nobodys(subject: tuple[tuple[str, str], ...]) -> None:
    assert user_of(certificate(*subject)) is None


async def test_a_certificate_ends_while_its_connection_goes_on() -> None:
    clock = FakeClock(datetime(2030, 1, 1, tzinfo=UTC))
    certificates = ClientCertificates(clock)
    given = certificate(("commonName", "jane"))
    assert certificates.holder(given) == User("jane")
    await clock.advance(timedelta(minutes=1).total_seconds() + 1)
    with pytest.raises(CredentialRefused, match="expired"):
        certificates.holder(given)
