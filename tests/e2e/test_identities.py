"""Users of other systems, with a real kubectl: OpenID Connect, webhooks and proxies; and encryption
at rest."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import re
import ssl
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from kedge.apiserver import pki
from kedge.testing.kms_plugin import TestKeyPlugin
from kedge.testing.oidc_provider import OidcProvider, ProviderKey, authentication_file
from kedge.web.message import HttpRequest, Response

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path

    from tests.e2e.conftest import Cluster, Clusters, Kubectl

FRIENDS = ("webhook-user", "devs")
"""Whom the token webhook knows, and in which group."""


class OtherSystems:
    """An issuer of tokens, a token webhook and an authorization webhook, at one address."""

    def __init__(self, directory: Path) -> None:
        identity = pki.ensure(directory, ("127.0.0.1",))
        self.ca_pem = identity.ca_pem
        self.reviews: list[dict[str, Any]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._server.socket = identity.context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"
        self.provider = OidcProvider(self.url, self.ca_pem)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def kubeconfig(self, path: str) -> dict[str, Any]:
        """Return the kubeconfig of a webhook."""
        cluster = {"server": f"{self.url}/{path}", "certificate-authority": "other/ca.crt"}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "hook", "cluster": cluster}],
            "contexts": [{"name": "hook", "context": {"cluster": "hook", "user": "server"}}],
            "users": [{"name": "server", "user": {}}],
            "current-context": "hook",
        }

    def answer(self, path: str, body: bytes) -> dict[str, Any]:
        review = json.loads(body)
        spec = review["spec"]
        if path == "/token":
            review["status"] = _token_status(spec["token"])
        else:
            self.reviews.append(spec)
            review["status"] = {"allowed": spec.get("user") == FRIENDS[0]}
        return review

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        systems = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                found = systems.provider.handle(HttpRequest("GET", self.path))
                assert isinstance(found, Response)
                assert isinstance(found.body, bytes)
                self._send(found.status, found.body)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self._send(200, json.dumps(systems.answer(self.path, body)).encode())

            def _send(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


def _token_status(token: str) -> dict[str, Any]:
    if token != "friend-token":
        return {"authenticated": False}
    user = {"username": FRIENDS[0], "groups": [FRIENDS[1]], "uid": "7"}
    return {"authenticated": True, "user": user}


def authorizers(webhook: Path) -> dict[str, Any]:
    """Return a configuration that asks a webhook last."""
    hook = {
        "timeout": "5s",
        "subjectAccessReviewVersion": "v1",
        "matchConditionSubjectAccessReviewVersion": "v1",
        "failurePolicy": "NoOpinion",
        "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": str(webhook)},
        "matchConditions": [{"expression": "!request.user.startsWith('system:')"}],
    }
    return {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthorizationConfiguration",
        "authorizers": [
            {"type": "Node", "name": "node"},
            {"type": "RBAC", "name": "rbac"},
            {"type": "Webhook", "name": "hook", "webhook": hook},
        ],
    }


FIRST_KEY = {"aesgcm": {"keys": [{"name": "first", "secret": "MDEyMzQ1Njc4OTAxMjM0NQ=="}]}}
LONG_SECRET = base64.b64encode(b"2" * 32).decode()
SECOND_KEY = {"secretbox": {"keys": [{"name": "second", "secret": LONG_SECRET}]}}


def secrets_encryption(*providers: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [{"resources": ["secrets"], "providers": [*providers]}],
    }


class KeyPluginThread:
    """A KMS plugin that answers while the tests run."""

    def __init__(self, socket: Path) -> None:
        self.plugin = TestKeyPlugin()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._run(self.plugin.listen(socket))

    def close(self) -> None:
        self._run(self.plugin.close())
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)


def with_service(socket: Path, document: dict[str, Any]) -> dict[str, Any]:
    """Return an EncryptionConfiguration in which ConfigMaps have keys of a plugin."""
    kms = {"apiVersion": "v2", "name": "vault", "endpoint": f"unix://{socket}"}
    entry = {"resources": ["configmaps"], "providers": [{"kms": kms}, {"identity": {}}]}
    return document | {"resources": [*document["resources"], entry]}


@pytest.fixture(scope="module")
def systems(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherSystems]:
    running = OtherSystems(tmp_path_factory.mktemp("systems") / "other")
    yield running
    running.close()


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, systems: OtherSystems, own_clusters: type[Clusters]
) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("identities")
    (home / "other").mkdir()
    (home / "other/ca.crt").write_bytes(systems.ca_pem)
    pki.ensure_front_proxy(home / "proxies", datetime.now(UTC))
    write(home / "authentication.yaml", authentication_file(systems.provider.entry()))
    write(home / "authorization.yaml", authorizers(home / "authorize.yaml"))
    key_plugin = KeyPluginThread(home / "kms.sock")
    write(
        home / "encryption.yaml",
        with_service(home / "kms.sock", secrets_encryption(FIRST_KEY)),
    )
    for path in ("token", "authorize"):
        write(home / f"{path}.yaml", systems.kubeconfig(path))
    own = own_clusters.own(home)
    yield own.up(
        f"--authentication-config={home / 'authentication.yaml'}",
        f"--authorization-config={home / 'authorization.yaml'}",
        f"--authentication-token-webhook-config-file={home / 'token.yaml'}",
        "--authentication-token-webhook-version=v1",
        f"--requestheader-client-ca-file={home / 'proxies/ca.crt'}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User,X-Login",
        f"--encryption-provider-config={home / 'encryption.yaml'}",
        "--encryption-provider-config-automatic-reload",
    )
    own.down()
    key_plugin.close()


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Any:
    return cluster.api


def write(path: Path, document: Any) -> None:
    path.write_text(yaml.safe_dump(document))


def bare(kubectl: Kubectl, token: str) -> Kubectl:
    """Return the kubectl of a user who has a token and nothing else."""
    home = kubectl.cluster.home
    (home / "cluster-ca.crt").write_text(kubectl.cluster.api.ca_pem)
    server = {"server": kubectl.cluster.api.url, "certificate-authority": "cluster-ca.crt"}
    write(
        home / "bare.yaml",
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": server}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "current-context": "c",
        },
    )
    kubectl.environment["KUBECONFIG"] = str(home / "bare.yaml")
    return kubectl


def user_of(kubectl: Kubectl, token: str) -> dict[str, Any]:
    found: dict[str, Any] = bare(kubectl, token).json("auth whoami")["status"]["userInfo"]
    return found


def refused(kubectl: Kubectl, token: str) -> bool:
    said = bare(kubectl, token)("auth whoami", check=False).stderr
    return "Unauthorized" in said or "must be logged in" in said


def test_a_token_of_an_issuer(
    kubectl: Kubectl, systems: OtherSystems, eventually: Callable[..., Any]
) -> None:
    token = systems.provider.token(groups=["ops"])
    # The server finds its issuers in the background.
    eventually(lambda: not refused(kubectl, token))
    user = user_of(kubectl, token)
    assert user["username"] == "oidc:jane"
    assert user["groups"] == ["oidc:ops", "system:authenticated"]


def test_a_rotated_key_counts_at_once(
    kubectl: Kubectl, systems: OtherSystems, eventually: Callable[..., Any]
) -> None:
    provider = systems.provider
    eventually(lambda: not refused(kubectl, provider.token()))
    provider.keys.append(ProviderKey("second", "RS256"))
    eventually(lambda: not refused(kubectl, provider.token()))


@pytest.mark.parametrize(
    "claims",
    [{"exp": 1_000_000_000}, {"aud": "another"}, {"iss": "https://127.0.0.1:1"}, {"sub": None}],
    ids=str,
)
def test_a_token_that_does_not_hold(
    kubectl: Kubectl, systems: OtherSystems, claims: dict[str, Any]
) -> None:
    assert refused(kubectl, systems.provider.token(**claims))


def test_webhooks_know_a_token_and_allow_its_user(kubectl: Kubectl, systems: OtherSystems) -> None:
    user = user_of(kubectl, "friend-token")
    assert (user["username"], user["uid"]) == (FRIENDS[0], "7")
    assert user["groups"] == [FRIENDS[1], "system:authenticated"]
    kubectl("create configmap of-a-friend")
    assert kubectl.says("auth can-i delete configmaps") == "yes"
    asked = [each["user"] for each in systems.reviews if "resourceAttributes" in each]
    assert FRIENDS[0] in asked
    assert refused(kubectl, "stranger-token")


class Client:
    """A client with a certificate, which sends headers."""

    def __init__(self, cluster: Cluster, certificate: Path | None = None) -> None:
        self._tls = ssl.create_default_context(cadata=cluster.api.ca_pem)
        if certificate is not None:
            self._tls.load_cert_chain(
                certificate.with_suffix(".crt"), certificate.with_suffix(".key")
            )
        self._address = urlsplit(cluster.api.url).netloc

    def whoami(self, *headers: tuple[str, str]) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPSConnection(self._address, context=self._tls, timeout=30)
        body = json.dumps(
            {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        ).encode()
        try:
            connection.putrequest("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews")
            for name, value in (("Content-Type", "application/json"), *headers):
                connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            document = json.loads(answer.read())
        finally:
            connection.close()
        return answer.status, document["status"]["userInfo"] if answer.status == 201 else {}


ANN = (
    ("X-Remote-User", "ann"),
    ("X-Remote-Group", "devs"),
    ("X-Remote-Group", "ops, too"),
    ("X-Remote-Extra-Example.com%2fScopes", "a"),
)


def test_a_proxy_names_the_user(cluster: Cluster) -> None:
    proxy = Client(cluster, cluster.home / "proxies/client")
    assert proxy.whoami(*ANN) == (
        201,
        {
            "username": "ann",
            "groups": ["devs", "ops, too", "system:authenticated"],
            "extra": {"example.com/scopes": ["a"]},
        },
    )
    code, user = proxy.whoami(("X-Login", "bob"))
    assert (code, user["username"]) == (201, "bob")
    # Whoever it names, it is not a user itself.
    assert proxy.whoami()[0] == 401


def certify(cluster: Cluster, name: str) -> None:
    """Make a client certificate of the cluster's authority for this common name."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject)
    pem = request.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    authority = cluster.home / "state/pki"
    issued = pki.sign_request(
        authority, pem, ["client auth"], timedelta(hours=1), datetime.now(UTC)
    )
    (cluster.home / f"{name}.crt").write_bytes(issued)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (cluster.home / f"{name}.key").write_bytes(private)


def test_nobody_else_can_name_a_user(cluster: Cluster) -> None:
    assert Client(cluster).whoami(*ANN)[0] in (401, 403)
    token = ("Authorization", f"Bearer {cluster.api.token}")
    code, user = Client(cluster).whoami(token, *ANN)
    assert (code, user["username"]) == (201, "kubernetes-admin")
    # A certificate of the cluster with the name of a proxy is one of a user of that name.
    certify(cluster, "front-proxy-client")
    code, user = Client(cluster, cluster.home / "front-proxy-client").whoami(*ANN)
    assert (code, user["username"]) == (201, "front-proxy-client")


def test_extension_servers_are_told_about_proxies(
    cluster: Cluster, eventually: Callable[..., Any]
) -> None:
    path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    eventually(lambda: cluster.api.exists(path))
    data = cluster.api.get(path)["data"]
    assert json.loads(data["requestheader-username-headers"]) == ["X-Remote-User", "X-Login"]
    given = (cluster.home / "proxies/ca.crt").read_text().strip()
    assert given in data["requestheader-client-ca-file"]
    assert data["requestheader-client-ca-file"].count("BEGIN CERTIFICATE") == 2


def reloads(cluster: Cluster, subject: str, status: str) -> int:
    """Return how often a configuration was read again."""
    name = f"apiserver_{subject}_config_controller_automatic_reloads_total"
    with cluster.api.open(cluster.api.request("GET", "/metrics")) as answer:
        text = answer.read().decode()
    found = re.search(rf'^{name}{{status="{status}"}} (\d+)$', text, re.MULTILINE)
    return int(found[1]) if found else 0


class Configuration:
    """A configuration file of the running cluster."""

    def __init__(self, cluster: Cluster, subject: str, eventually: Callable[..., Any]) -> None:
        self._cluster = cluster
        self._subject = subject
        self._eventually = eventually

    def replace(self, document: Any, outcome: str = "success") -> None:
        """Replace the file at once, and wait until the server has looked at it."""
        before = reloads(self._cluster, self._subject, outcome)
        path = self._cluster.home / f"{self._subject}.yaml"
        write(path.with_suffix(".new"), document)
        path.with_suffix(".new").replace(path)
        self._eventually(lambda: reloads(self._cluster, self._subject, outcome) > before)


def disk(cluster: Cluster) -> bytes:
    """Return the bytes of the database and its log."""
    return b"".join(path.read_bytes() for path in (cluster.home / "state").glob("store.db*"))


def test_a_plugin_keeps_the_key_of_config_maps(kubectl: Kubectl, cluster: Cluster) -> None:
    kubectl("create configmap settings --from-literal=colour=ultramarine")
    assert b"k8s:enc:kms:v2:vault:" in disk(cluster)
    assert b"ultramarine" not in disk(cluster)
    assert kubectl.json("get configmap settings")["data"] == {"colour": "ultramarine"}


def test_keys_are_rotated_with_kubectl(
    kubectl: Kubectl, cluster: Cluster, eventually: Callable[..., Any]
) -> None:
    socket = cluster.home / "kms.sock"

    def encryption(*keys: Any) -> dict[str, Any]:
        return with_service(socket, secrets_encryption(*keys))

    file = Configuration(cluster, "encryption", eventually)
    kubectl("create secret generic login --from-literal=password=swordfish")
    assert b"k8s:enc:aesgcm:v1:first:" in disk(cluster)
    assert base64.b64encode(b"swordfish") not in disk(cluster)
    file.replace(encryption(FIRST_KEY, SECOND_KEY))
    file.replace(encryption(SECOND_KEY, FIRST_KEY))
    # The old key is still in use: the file is refused, and nothing changes.
    file.replace(encryption(SECOND_KEY), "failure")
    kubectl("replace -f -", input=kubectl("get secrets --all-namespaces -o json").stdout)
    assert b"k8s:enc:secretbox:v1:second:" in disk(cluster)
    file.replace(encryption(SECOND_KEY))
    found = kubectl.json("get secret login")["data"]["password"]
    assert base64.b64decode(found) == b"swordfish"
    file.replace(encryption(FIRST_KEY, SECOND_KEY))


def test_authorizers_are_read_again(
    kubectl: Kubectl, cluster: Cluster, eventually: Callable[..., Any]
) -> None:
    file = Configuration(cluster, "authorization", eventually)
    before = authorizers(cluster.home / "authorize.yaml")
    file.replace(before | {"authorizers": before["authorizers"][1:]}, "failure")
    file.replace(before | {"authorizers": before["authorizers"][:2]})
    assert "forbidden" in bare(kubectl, "friend-token").fails("get configmaps")
    file.replace(before)
    kubectl("get configmaps")
