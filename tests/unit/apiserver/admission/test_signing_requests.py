"""CertificateSigningRequests through the server: who asked, who decides, who signs."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from kedge.apiserver import pki
from kedge.apiserver.config import UPSTREAM_ADMISSION
from kedge.testing.local_server import MERGE, LocalAnswer, LocalServer

URL = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
ROLES = "/apis/rbac.authorization.k8s.io/v1"
KEY = ec.generate_private_key(ec.SECP256R1())
SIGNER = "kubernetes.io/kube-apiserver-client"
JANE = {"impersonate-user": "jane", "impersonate-group": "devs"}


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    """One that enforces what clusters enforce, and on which jane may do all but sign or approve."""
    async with LocalServer.running(admission=UPSTREAM_ADMISSION) as running:
        for part in ("", "/approval", "/status"):
            await grant(running, f"all{len(part)}", "*", f"certificatesigningrequests{part}", "")
        yield running


async def grant(server: LocalServer, name: str, verb: str, resource: str, only: str) -> None:
    rule = {"apiGroups": ["certificates.k8s.io"], "resources": [resource], "verbs": [verb]}
    rule |= {"resourceNames": [only]} if only else {}
    await server.post(f"{ROLES}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "jane"}],
    }
    await server.post(f"{ROLES}/clusterrolebindings", binding)
    await server.settle()


def csr(group: str = "devs") -> str:
    subject = x509.Name(
        [
            x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, group),
            x509.NameAttribute(x509.NameOID.COMMON_NAME, "jane"),
        ]
    )
    signed = x509.CertificateSigningRequestBuilder(subject).sign(KEY, hashes.SHA256())
    return base64.b64encode(signed.public_bytes(Encoding.PEM)).decode()


async def asked(server: LocalServer, group: str = "devs", **spec: Any) -> LocalAnswer:
    wanted = {"request": csr(group), "signerName": SIGNER, "usages": ["client auth"]}
    document = {"metadata": {"name": "mine"}, "spec": wanted | spec}
    return await server.call("POST", URL, document, headers=JANE)


async def patched(server: LocalServer, part: str, status: Any, **headers: str) -> LocalAnswer:
    who = JANE if headers == {} else headers
    return await server.call(
        "PATCH", f"{URL}/mine/{part}", {"status": status}, content_type=MERGE, headers=who
    )


APPROVED = {"type": "Approved", "status": "True", "reason": "Fine"}


async def test_the_server_says_who_asks(server: LocalServer) -> None:
    forged: dict[str, Any] = {
        "username": "root",
        "uid": "1",
        "groups": ["system:masters"],
        "extra": {"a": ["b"]},
    }
    made = (await asked(server, **forged)).document
    assert {k: v for k, v in made["spec"].items() if k in forged} == {
        "username": "jane",
        "groups": ["devs", "system:authenticated"],
    }
    assert "status" not in made or not made["status"]


async def test_the_request_of_one_stays_theirs_when_another_changes_it(server: LocalServer) -> None:
    await asked(server)
    await server.merge(f"{URL}/mine", {"metadata": {"labels": {"a": "b"}}, "spec": {"uid": "9"}})
    found = await server.get(f"{URL}/mine")
    assert found["metadata"]["labels"] == {"a": "b"}
    assert found["spec"]["username"] == "jane"
    assert "uid" not in found["spec"]


async def test_nobody_asks_for_the_rights_of_a_superuser(server: LocalServer) -> None:
    answer = await asked(server, "system:masters")
    assert answer.status == 403
    assert answer.message.endswith(
        f"use of {SIGNER} signer with system:masters group is not allowed"
    )


async def test_to_approve_takes_a_right_to_the_signer(server: LocalServer) -> None:
    await asked(server)
    refused = await patched(server, "approval", {"conditions": [APPROVED]})
    assert refused.status == 403
    assert refused.message.endswith(
        f'user not permitted to approve requests with signerName "{SIGNER}"'
    )
    await grant(server, "approve", "approve", "signers", "kubernetes.io/*")
    done = (await patched(server, "approval", {"conditions": [APPROVED]})).document
    now = "2030-01-01T00:00:00Z"
    assert done["status"]["conditions"] == [
        APPROVED | {"lastUpdateTime": now, "lastTransitionTime": now}
    ]


async def test_to_sign_takes_another_right(server: LocalServer, tmp_path: Path) -> None:
    certificate = base64.b64encode(pki.ensure(tmp_path / "pki", ()).ca_pem).decode()
    await asked(server)
    refused = await patched(server, "status", {"certificate": certificate})
    assert refused.message.endswith(
        f'user not permitted to sign requests with signerName "{SIGNER}"'
    )
    await grant(server, "sign", "sign", "signers", SIGNER)
    assert (await patched(server, "status", {"certificate": certificate})).status == 200
    again = await patched(server, "status", {"certificate": certificate[:-8] + "AAAAAAA="})
    assert "updates may not modify existing certificate content" in again.message


@pytest.mark.parametrize(
    ("part", "status", "complaint"),
    [
        ("status", {"certificate": "bm9uZQ=="}, "at least one CERTIFICATE PEM block"),
        ("status", {"conditions": [APPROVED]}, 'may not add a condition of type "Approved"'),
        ("approval", {"conditions": [{"type": "Odd", "status": "Maybe"}]}, "Unsupported value"),
        ("approval", {"conditions": [APPROVED | {"status": "False"}]}, "Unsupported value"),
        (
            "approval",
            {"conditions": [APPROVED, APPROVED | {"type": "Denied"}]},
            "mutually exclusive",
        ),
    ],
)
async def test_what_makes_no_sense_is_refused(
    server: LocalServer, part: str, status: Any, complaint: str
) -> None:
    await asked(server)
    answer = await patched(server, part, status, **{"x-nobody": "else"})
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert complaint in answer.message


async def test_an_approval_is_not_taken_back(server: LocalServer) -> None:
    await asked(server)
    admin = {"x-nobody": "else"}
    await patched(server, "approval", {"conditions": [APPROVED]}, **admin)
    answer = await patched(
        server, "approval", {"conditions": [{"type": "A", "status": "True"}]}, **admin
    )
    assert 'updates may not remove a condition of type "Approved"' in answer.message
    failed = {"type": "Failed", "status": "True", "reason": "No"}
    reworded = APPROVED | {"reason": "Reworded"}
    done = await patched(server, "status", {"conditions": [reworded, failed]}, **admin)
    assert [each["reason"] for each in done.document["status"]["conditions"]] == ["Fine", "No"]
