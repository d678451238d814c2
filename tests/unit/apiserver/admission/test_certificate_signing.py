"""Adding a certificate to a CertificateSigningRequest needs a right to its signer."""

from typing import Any

import pytest

from kedge.apiserver.admission.certificate_signing import CertificateSigning
from kedge.apiserver.admission.chain import Attempt
from kedge.machinery.errors import StatusError
from kedge.testing.admission import attempt
from kedge.testing.signing_requests import JANE, RESOURCE, SIGNER, jane_may, signing_request


def write(subresource: str = "status", **status: Any) -> Attempt:
    new, old = signing_request(**status), signing_request()
    return attempt(RESOURCE, "UPDATE", new, old, user=JANE, subresource=subresource)


@pytest.mark.parametrize("status", [{"certificate": "pem"}, {"conditions": [{"type": "Failed"}]}])
async def test_certificate_and_conditions_are_for_those_who_may_sign(status: Any) -> None:
    signed = write(**status)
    plugin = CertificateSigning(jane_may("sign", SIGNER))
    await plugin.validate(signed)
    assert await plugin.mutate(signed) is signed.object
    with pytest.raises(StatusError, match="user not permitted to sign"):
        await CertificateSigning(jane_may("approve", SIGNER)).validate(signed)


async def test_other_writes_need_no_such_right() -> None:
    plugin = CertificateSigning(jane_may("approve"))
    await plugin.validate(write())
    await plugin.validate(write("approval", conditions=[{"type": "Approved"}]))
