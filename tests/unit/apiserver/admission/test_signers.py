"""Rights to signers: to one by its name, or to all of a domain."""

import pytest

from kedge.apiserver.admission import signers
from kedge.machinery.errors import StatusError
from kedge.testing.admission import attempt
from kedge.testing.signing_requests import JANE, RESOURCE, SIGNER, jane_may, signing_request


@pytest.mark.parametrize(
    ("granted", "allowed"),
    [
        (SIGNER, True),
        ("example.com/*", True),
        ("example.com/other", False),
        ("example.org/*", False),
        ("*", False),
    ],
)
def test_a_right_is_to_one_signer_or_to_its_domain(granted: str, allowed: bool) -> None:
    assert signers.may(jane_may("approve", granted), JANE, "approve", SIGNER) is allowed


def test_a_right_is_for_one_verb() -> None:
    assert not signers.may(jane_may("approve", SIGNER), JANE, "sign", SIGNER)


def test_the_signer_of_the_stored_request_counts() -> None:
    new, old = signing_request("example.com/mine"), signing_request()
    written = attempt(RESOURCE, "UPDATE", new, old, user=JANE)
    signers.check(jane_may("sign", SIGNER), written, "sign")
    with pytest.raises(StatusError, match=f'not permitted to sign .* "{SIGNER}"') as refusal:
        signers.check(jane_may("sign", "example.com/mine"), written, "sign")
    assert refusal.value.code == 403


def test_the_signed_parts_of_a_status_are_certificate_and_conditions() -> None:
    assert signers.status_of(signing_request()) == ("", [])
    signed = signing_request(certificate="pem", conditions=[{"type": "Approved"}], other=1)
    assert signers.status_of(signed) == ("pem", [{"type": "Approved"}])
