"""CertificateSigningRequests, and users with rights to signers, for tests."""

from typing import Any, Final

from kedge.api.catalog import BUILT_IN
from kedge.api.model import Document, ObjectMeta
from kedge.api.rbac_v1.role import PolicyRule
from kedge.api.rbac_v1.role_binding import RoleRef, Subject
from kedge.apiserver.authorization.authorizer import Authorizer
from kedge.apiserver.authorization.node import Graph, NodeAuthorizer
from kedge.apiserver.authorization.rbac import Policy, RoleName
from kedge.apiserver.request import User

RESOURCE: Final = next(each for each in BUILT_IN if each.plural == "certificatesigningrequests")
SIGNER: Final = "example.com/signer"
JANE: Final = User("jane")


def signing_request(signer: str = SIGNER, request: str = "", **status: Any) -> Document:
    content: dict[str, Any] = {"spec": {"signerName": signer, "request": request}}
    return Document(metadata=ObjectMeta(name="mine"), content=content | {"status": status})


def jane_may(verb: str, *signers: str) -> Authorizer:
    """Return an authorizer that grants Jane a verb for these signers."""
    rule = PolicyRule(
        apiGroups=["certificates.k8s.io"],
        resources=["signers"],
        verbs=[verb],
        resourceNames=list(signers),
    )
    policy = Policy()
    policy.put_role(RoleName("", "signer"), [rule])
    policy.put_binding(
        "", "jane", RoleRef(kind="ClusterRole", name="signer"), [Subject(kind="User", name="jane")]
    )
    return Authorizer(policy, NodeAuthorizer(Graph()))
