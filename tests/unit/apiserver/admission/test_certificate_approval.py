"""Approving a CertificateSigningRequest needs a right to its signer."""

import pytest

from kedge.apiserver.admission.certificate_approval import CertificateApproval
from kedge.machinery.errors import StatusError
from kedge.testing.admission import attempt
from kedge.testing.signing_requests import JANE, RESOURCE, SIGNER, jane_may, signing_request

OLD = signing_request()
NEW = signing_request(conditions=[{"type": "Approved"}])
APPROVAL = attempt(RESOURCE, "UPDATE", NEW, OLD, user=JANE, subresource="approval")


async def test_a_user_with_the_right_approves() -> None:
    plugin = CertificateApproval(jane_may("approve", SIGNER))
    await plugin.validate(APPROVAL)
    assert await plugin.mutate(APPROVAL) is NEW


async def test_a_user_without_the_right_does_not() -> None:
    with pytest.raises(StatusError, match="user not permitted to approve"):
        await CertificateApproval(jane_may("sign", SIGNER)).validate(APPROVAL)


async def test_other_parts_of_a_request_need_no_such_right() -> None:
    plugin = CertificateApproval(jane_may("approve"))
    for part in ("", "status"):
        await plugin.validate(attempt(RESOURCE, "UPDATE", NEW, OLD, user=JANE, subresource=part))
