"""No client certificate names the group of superusers."""

import base64

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from kedge.apiserver.admission.certificate_subject_restriction import (
    SIGNER,
    CertificateSubjectRestriction,
    organizations,
)
from kedge.machinery.errors import StatusError
from kedge.testing.admission import attempt
from kedge.testing.signing_requests import RESOURCE, signing_request

KEY = ec.generate_private_key(ec.SECP256R1())


def csr(*groups: str) -> str:
    names = [x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, group) for group in groups]
    names.append(x509.NameAttribute(x509.NameOID.COMMON_NAME, "jane"))
    made = x509.CertificateSigningRequestBuilder(x509.Name(names)).sign(KEY, hashes.SHA256())
    return base64.b64encode(made.public_bytes(Encoding.PEM)).decode()


def test_organizations_are_the_groups_of_a_certificate() -> None:
    assert organizations(csr("devs", "ops")) == ["devs", "ops"]


async def test_a_request_for_the_group_of_superusers_is_refused() -> None:
    plugin = CertificateSubjectRestriction()
    wanted = signing_request(SIGNER, csr("devs", "system:masters"))
    with pytest.raises(StatusError, match="system:masters group is not allowed"):
        await plugin.validate(attempt(RESOURCE, "CREATE", wanted))
    await plugin.validate(attempt(RESOURCE, "UPDATE", wanted, wanted))


async def test_other_groups_and_other_signers_are_allowed() -> None:
    plugin = CertificateSubjectRestriction()
    for wanted in (
        signing_request(SIGNER, csr("devs")),
        signing_request("example.com/own", csr("system:masters")),
    ):
        create = attempt(RESOURCE, "CREATE", wanted)
        await plugin.validate(create)
        assert await plugin.mutate(create) is wanted


async def test_a_request_that_cannot_be_read_is_refused() -> None:
    unreadable = signing_request(SIGNER, base64.b64encode(b"no request").decode())
    with pytest.raises(StatusError, match="failed to parse CSR"):
        await CertificateSubjectRestriction().validate(attempt(RESOURCE, "CREATE", unreadable))
