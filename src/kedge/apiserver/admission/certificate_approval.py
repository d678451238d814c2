"""CertificateApproval: only those decide about a request who may approve for its signer."""

from kedge.apiserver.admission import signers
from kedge.apiserver.admission.chain import Attempt, ValidatingPlugin
from kedge.apiserver.admission.signing_requests import concerns
from kedge.apiserver.authorization.authorizer import Authorizer


class CertificateApproval(ValidatingPlugin):
    """Lets only users with the verb `approve` for the signer decide about a signing request."""

    name = "CertificateApproval"

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def validate(self, attempt: Attempt) -> None:
        if concerns(attempt.request) and attempt.request.subresource == "approval":
            signers.check(self._authorizer, attempt, "approve")
