"""CertificateSubjectRestriction: refuses requests for a certificate of a superuser."""

import base64

from kedge.api.builtin.content import text
from kedge.api.model import Document
from kedge.apiserver.admission.chain import Attempt, ValidatingPlugin
from kedge.apiserver.admission.refusal import refused
from kedge.apiserver.admission.signing_requests import concerns
from kedge.apiserver.authorization.authorizer import SUPERUSERS

SIGNER = "kubernetes.io/kube-apiserver-client"


class CertificateSubjectRestriction(ValidatingPlugin):
    """Refuses requests for client certificates of the group `system:masters`."""

    name = "CertificateSubjectRestriction"

    async def validate(self, attempt: Attempt) -> None:
        obj = attempt.object
        if attempt.operation != "CREATE" or not concerns(attempt.request):
            return
        if isinstance(obj, Document) and text(obj.content, "spec.signerName") == SIGNER:
            try:
                groups = organizations(text(obj.content, "spec.request"))
            except ValueError as error:
                raise refused(attempt, f"failed to parse CSR: {error}") from error
            if SUPERUSERS in groups:
                why = f"use of {SIGNER} signer with {SUPERUSERS} group is not allowed"
                raise refused(attempt, why)


def organizations(request: str) -> list[str]:
    """The groups that a certificate is asked for; ValueError if nothing can be read."""
    # Only here: it takes longer to import than all other plugins together.
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    subject = x509.load_pem_x509_csr(base64.b64decode(request)).subject
    named = subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return [str(part.value) for part in named]
