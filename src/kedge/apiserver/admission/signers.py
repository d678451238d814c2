"""Signers: who may decide about the certificates of a signer, and who may sign them."""

from typing import Any

from kedge.api.builtin.content import text
from kedge.api.model import Document
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.admission.refusal import refused
from kedge.apiserver.admission.signing_requests import GROUP
from kedge.apiserver.authorization.attributes import Attributes
from kedge.apiserver.authorization.authorizer import Authorizer
from kedge.apiserver.request import User


def check(authorizer: Authorizer, attempt: Attempt, verb: str) -> None:
    """403 unless the user may do this for the signer that the request is addressed to."""
    assert isinstance(attempt.old, Document)
    signer = text(attempt.old.content, "spec.signerName")
    if not may(authorizer, attempt.request.user, verb, signer):
        why = f'user not permitted to {verb} requests with signerName "{signer}"'
        raise refused(attempt, why)


def may(authorizer: Authorizer, user: User, verb: str, signer: str) -> bool:
    """A right to one signer, or to all of its domain: `example.com/*`."""
    domain = signer.partition("/")[0]
    return any(
        authorizer.decide(_asked(user, verb, name)).allowed for name in (signer, f"{domain}/*")
    )


def _asked(user: User, verb: str, name: str) -> Attributes:
    return Attributes(user=user, verb=verb, group=GROUP, version="*", plural="signers", name=name)


def status_of(obj: Any) -> Any:
    """Return the signed parts of a status: the certificate and the conditions."""
    assert isinstance(obj, Document)
    status = obj.content.get("status") or {}
    return status.get("certificate") or "", status.get("conditions") or []
