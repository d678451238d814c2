"""Finding a server and an identity in kubeconfig files."""

import base64
import json
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.client import login
from kedge.client.kubeconfig import KubeconfigError
from kedge.client.transport import Unreachable
from kedge.testing.server import memory_server


def encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()


def config(name: str, user: dict[str, Any], cluster: Any = None, **more: Any) -> dict[str, Any]:
    described = {"server": f"https://{name}:1", **(cluster or {})}
    return {
        "clusters": [{"name": name, "cluster": described}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
        **more,
    }


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return path


def test_the_current_context_says_where_and_who(tmp_path: Path) -> None:
    context = {"cluster": "one", "user": "one", "namespace": "mine"}
    cluster = {"certificate-authority-data": encoded(b"PEM"), "tls-server-name": "other"}
    content = config(
        "one", {"token": "secret"}, cluster, contexts=[{"name": "c", "context": context}]
    )
    path = write(tmp_path / "config", content | {"current-context": "c"})
    found = login.read([path])
    assert (found.context, found.file, found.namespace) == ("c", path, "mine")
    assert (found.server, found.ca_pem, found.token) == ("https://one:1", b"PEM", "secret")
    assert (found.insecure, found.server_name) == (False, "other")


def test_another_context_can_be_named(tmp_path: Path) -> None:
    both = [
        write(tmp_path / "a", config("one", {"token": "1"})),
        write(tmp_path / "b", config("two", {"token": "2"})),
    ]
    assert login.read(both).server == "https://one:1"
    found = login.read(both, "two")
    assert (found.server, found.token, found.file) == ("https://two:1", "2", both[1])


def test_of_several_files_the_first_to_name_a_thing_decides(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    first = write(tmp_path / "a", config("one", {"token": "first"}, **{"current-context": ""}))
    second = write(tmp_path / "b", config("one", {"token": "second"}))
    assert login.read([missing, first, second]).token == "first"


def test_named_files_are_found_beside_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("CA")
    (tmp_path / "token").write_text("secret\n")
    user = {"tokenFile": "token", "client-certificate": "ca.crt", "client-key": "ca.crt"}
    path = write(tmp_path / "config", config("one", user, {"certificate-authority": "ca.crt"}))
    found = login.read([path])
    assert (found.ca_pem, found.token) == (b"CA", "secret")
    assert (found.certificate_pem, found.key_pem) == (b"CA", b"CA")


def test_only_a_file_that_says_so_has_whoever_answers_believed(tmp_path: Path) -> None:
    plain = login.read([write(tmp_path / "a", config("one", {}))])
    assert plain.tls().verify_mode == ssl.CERT_REQUIRED
    cluster = {"insecure-skip-tls-verify": True}
    careless = login.read([write(tmp_path / "b", config("one", {}, cluster))])
    assert careless.tls().verify_mode == ssl.CERT_NONE


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("[]", "is not a kubeconfig file: it is not a mapping"),
        ("a: [", "is not a kubeconfig file"),
        (config("one", {}, **{"current-context": ""}), "no context is the current one"),
        (config("one", {}, **{"current-context": "two"}), 'context "two" does not exist'),
        (config("one", {}, clusters=[]), 'names the cluster "one", which does not exist'),
        (config("one", {}, users=None), 'names the user "one", which does not exist'),
        (config("one", {}, {"server": ""}), "does not say where its server is"),
        (config("one", {"exec": {"command": "aws"}}), 'has "exec", which kedge cannot do'),
        (config("one", {"as": "somebody"}), 'has "as", which kedge cannot do'),
        (config("one", {}, {"proxy-url": "http://x"}), 'has "proxy-url", which kedge cannot do'),
        (config("one", {"client-key-data": "x"}), "client-key-data: "),
        (config("one", {"tokenFile": "nowhere"}), "nowhere: No such file"),
    ],
)
def test_what_cannot_be_used_is_said(tmp_path: Path, content: Any, complaint: str) -> None:
    path = tmp_path / "config"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    with pytest.raises(KubeconfigError, match=complaint):
        login.read([path])


def test_without_any_file_there_is_nowhere_to_go(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="there is no kubeconfig"):
        login.read([tmp_path / "config"])


def test_broken_credentials_are_said(tmp_path: Path) -> None:
    user = {"client-certificate-data": encoded(b"no certificate")}
    found = login.read([write(tmp_path / "config", config("one", user))])
    with pytest.raises(KubeconfigError, match='context "one" in '):
        found.transport()


async def test_a_client_certificate_is_shown_to_the_server(tmp_path: Path) -> None:
    async with memory_server(tmp_path / "state") as running:
        pki = "state/pki"
        user = {
            "client-certificate": f"{pki}/node-client.crt",
            "client-key": f"{pki}/node-client.key",
        }
        cluster = {"server": running.url, "certificate-authority": f"{pki}/ca.crt"}
        found = login.read([write(tmp_path / "config", config("one", user, cluster))])
        client = found.client("test")
        review = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        reply = await client.send("POST", path, body=json.dumps(review).encode())
        await client.close()
    who = json.loads(reply.body)["status"]["userInfo"]
    assert who["username"] == "kube-apiserver-kubelet-client"


async def test_a_server_of_another_authority_is_not_believed(tmp_path: Path) -> None:
    async with memory_server(tmp_path / "state") as running:
        path = write(tmp_path / "config", config("one", {}, {"server": running.url}))
        client = login.read([path]).client("test")
        with pytest.raises(Unreachable, match="certificate verify failed"):
            await client.send("GET", "/version")
        await client.close()
