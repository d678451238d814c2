"""CertificateSigning: only those put a certificate into a request who may sign for its signer."""

from kedge.apiserver.admission import signers
from kedge.apiserver.admission.chain import Attempt, ValidatingPlugin
from kedge.apiserver.admission.signing_requests import concerns
from kedge.apiserver.authorization.authorizer import Authorizer


class CertificateSigning(ValidatingPlugin):
    """Lets only users with the verb `sign` for the signer add a certificate to a request."""

    name = "CertificateSigning"

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def validate(self, attempt: Attempt) -> None:
        if not concerns(attempt.request) or attempt.request.subresource != "status":
            return
        if signers.status_of(attempt.object) != signers.status_of(attempt.old):
            signers.check(self._authorizer, attempt, "sign")
