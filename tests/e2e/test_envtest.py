"""`kedge envtest`: the programs are started and used as controller-runtime's envtest does it."""

from __future__ import annotations

import contextlib
import http.server
import ipaddress
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.e2e.conftest import Terminal

START_SECONDS = 60.0
"""envtest waits for 20 seconds; other tests run beside this one."""
STOP_SECONDS = 20.0
NAMESPACES = "/api/v1/namespaces"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
CONTAINER = {"name": "main", "image": "image"}


class TinyAuthority:
    """Makes certificates as envtest's tinyca.go does."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "envtest-environment")])
        self.name, self.certificate = name, self._signed(name, self.key, is_authority=True)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def issue(self, name: str, groups: Sequence[str], hosts: Sequence[str]) -> tuple[bytes, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in groups]
        subject = x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._signed(subject, key, hosts=hosts)
        return made.public_bytes(Encoding.PEM), pem_of(key)

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *,
        hosts: Sequence[str] = (),
        is_authority: bool = False,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject if is_authority else self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(seconds=5))
            .not_valid_after(now + timedelta(days=7))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if hosts:
            names = [alternative(host) for host in hosts]
            made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        elif not is_authority:
            usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
            made = made.add_extension(usage, critical=False)
        return made.sign(self.key, SHA256())


def alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


class Program:
    """A program that envtest starts in a process group of its own, and whose health it polls."""

    def __init__(self, path: Path, arguments: Sequence[str], health: str) -> None:
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115, closed by stop
        self.process = subprocess.Popen(
            [path, *arguments],
            stdout=self.errors,
            stderr=self.errors,
            env={"PATH": os.environ["PATH"]},
            process_group=0,
        )
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        deadline = time.monotonic() + START_SECONDS
        while True:
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(health, context=trusting, timeout=5) as answer,
            ):
                assert answer.status == 200
                return
            assert self.process.poll() is None, self.output()
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.1)

    def output(self) -> str:
        self.errors.seek(0)
        return self.errors.read().decode()

    def stop(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait(STOP_SECONDS)
            self.errors.close()


def has_flag(program: Path, flag: str) -> bool:
    """Look for a flag in the help, as envtest does before each start."""
    done = subprocess.run([program, "--help"], capture_output=True, text=True, check=True)
    return re.search(rf"^\s*--{flag}\b", done.stdout + done.stderr, re.MULTILINE) is not None


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


class Environment:
    """An etcd and a kube-apiserver, with the files and arguments of envtest."""

    def __init__(self, assets: Path, home: Path) -> None:
        self.assets = assets
        self.data, self.certificates = home / "etcd", home / "apiserver"
        self.data.mkdir()
        self.authority, self.clients, self.signer = (TinyAuthority() for _ in range(3))
        self.port, self.etcd_port = free_port(), free_port()
        self.etcd: Program | None = None
        self.server: Program | None = None

    def start(self) -> None:
        self.etcd = self._start_etcd()
        self.certificates.mkdir()
        served = self.authority.issue("127.0.0.1", (), ("localhost", "127.0.0.1"))
        for name, content in (
            ("apiserver.crt", served[0]),
            ("apiserver.key", served[1]),
            ("sa-signer.crt", self.signer.pem),
            ("sa-signer.key", pem_of(self.signer.key)),
            ("client-cert-auth-ca.crt", self.clients.pem),
        ):
            (self.certificates / name).write_bytes(content)
        self.server = self.start_server()

    def _start_etcd(self) -> Program:
        url = f"http://127.0.0.1:{self.etcd_port}"
        arguments = [
            f"--advertise-client-urls={url}",
            f"--data-dir={self.data}",
            f"--listen-client-urls={url}",
            f"--listen-peer-urls=http://127.0.0.1:{free_port()}",
        ]
        if has_flag(self.assets / "etcd", "unsafe-no-fsync"):
            arguments.append("--unsafe-no-fsync=true")
        return Program(self.assets / "etcd", arguments, f"{url}/health")

    def arguments(self) -> dict[str, str]:
        here = self.certificates
        found = {
            "allow-privileged": "true",
            "authorization-mode": "RBAC",
            "bind-address": "127.0.0.1",
            "cert-dir": str(here),
            "client-ca-file": str(here / "client-cert-auth-ca.crt"),
            "disable-admission-plugins": "ServiceAccount",
            "etcd-servers": f"http://127.0.0.1:{self.etcd_port}",
            "secure-port": str(self.port),
            "service-account-issuer": f"https://127.0.0.1:{self.port}/",
            "service-account-key-file": str(here / "sa-signer.crt"),
            "service-account-signing-key-file": str(here / "sa-signer.key"),
            "service-cluster-ip-range": "10.0.0.0/24",
        }
        if has_flag(self.assets / "kube-apiserver", "insecure-port"):
            found["insecure-port"] = "0"
        return found

    def start_server(self, **more: str) -> Program:
        given = self.arguments() | {name.replace("_", "-"): value for name, value in more.items()}
        arguments = [f"--{name}={value}" for name, value in sorted(given.items())]
        health = f"https://127.0.0.1:{self.port}/healthz"
        return Program(self.assets / "kube-apiserver", arguments, health)

    def user(self, name: str, *groups: str) -> Callable[..., Any]:
        """Return a function that asks the server with a client certificate."""
        made = self.certificates / f"{name}.pem"
        made.write_bytes(b"".join(self.clients.issue(name, groups, ())))
        context = ssl.create_default_context(cadata=self.authority.pem.decode())
        context.load_cert_chain(made)

        def ask(method: str, path: str, body: object = None) -> Any:
            url = f"https://127.0.0.1:{self.port}{path}"
            content = None if body is None else json.dumps(body).encode()
            request = urllib.request.Request(url, content, method=method)
            request.add_header("Content-Type", "application/json")
            with urllib.request.urlopen(request, context=context, timeout=30) as answer:
                return json.load(answer)

        return ask

    def stop(self) -> list[int | None]:
        """Stop both; return their exit codes."""
        found = [each for each in (self.server, self.etcd) if each is not None]
        for each in found:
            each.stop()
        return [each.process.returncode for each in found]


@pytest.fixture
def environment(terminal: Terminal, tmp_path: Path) -> Iterator[Environment]:
    assets = Path(terminal.kedge("envtest").stdout.strip())
    # Every directory is used again.
    assert terminal.kedge("envtest").stdout.strip() == str(assets)
    running = Environment(assets, tmp_path)
    try:
        running.start()
        yield running
    finally:
        running.stop()


def test_an_operator_s_suite_runs(
    environment: Environment, eventually: Callable[..., Any], tmp_path: Path
) -> None:
    admin = environment.user("admin", "system:masters")
    assert admin("GET", f"{NAMESPACES}/default")["metadata"]["name"] == "default"
    names = {"plural": "frigates", "singular": "frigate", "kind": "Frigate"}
    version = {"name": "v1", "served": True, "storage": True}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    spec = {"group": "ship.example.com", "scope": "Namespaced", "names": names}
    spec["versions"] = [version | {"schema": {"openAPIV3Schema": schema}}]
    definition = {"metadata": {"name": "frigates.ship.example.com"}, "spec": spec}
    admin("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)

    def is_served() -> bool:
        with contextlib.suppress(urllib.error.HTTPError):
            found = admin("GET", "/apis/ship.example.com/v1")["resources"]
            return any(each["name"] == "frigates" for each in found)
        return False

    eventually(is_served, within=30)
    frigates = "/apis/ship.example.com/v1/namespaces/default/frigates"
    ship = {"apiVersion": "ship.example.com/v1", "kind": "Frigate", "metadata": {"name": "hms"}}
    admin("POST", frigates, ship)
    # Users are in the certificates; roles say what they may do.
    with pytest.raises(urllib.error.HTTPError, match="403"):
        environment.user("deckhand")("GET", frigates)
    # No controllers: nobody makes pods, and a namespace that is deleted stays.
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER]}}
    workload = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    admin("POST", DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": workload})
    # Nothing of kedge's own is there, and cluster IPs are of the network that envtest asks for.
    assert "metrics.k8s.io" not in {each["name"] for each in admin("GET", "/apis")["groups"]}
    assert admin("GET", "/apis/storage.k8s.io/v1/storageclasses")["items"] == []
    services = admin("GET", "/api/v1/services")["items"]
    assert [each["spec"]["clusterIP"] for each in services] == ["10.0.0.1"]
    # No ServiceAccount plugin: a pod needs no account.
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [CONTAINER]}}
    admin("POST", f"{NAMESPACES}/default/pods", pod)
    admin("POST", NAMESPACES, {"metadata": {"name": "doomed"}})
    admin("DELETE", f"{NAMESPACES}/doomed")

    # The server alone is started again, with other flags, and has its objects.
    assert environment.server is not None
    environment.server.stop()
    again = environment.server = environment.start_server(
        feature_gates="Some=true", enable_admission_plugins="LimitRanger", advertise_address="::1"
    )
    assert "--feature-gates has no effect: there are no feature gates" in again.output()
    assert [each["metadata"]["name"] for each in admin("GET", frigates)["items"]] == ["hms"]
    assert admin("GET", f"{NAMESPACES}/doomed")["status"]["phase"] == "Terminating"
    assert admin("GET", "/apis/apps/v1/replicasets")["items"] == []
    assert environment.stop() == [0, 0]


class Webhook(http.server.BaseHTTPRequestHandler):
    """Denies every request, at one path."""

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path.partition("?")[0] == "/deny"
        status = {"code": 403, "reason": "Forbidden", "message": "Always denied"}
        answer = {"uid": review["request"]["uid"], "allowed": False, "status": status}
        body = json.dumps(review | {"response": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def webhook(environment: Environment) -> Iterator[tuple[str, bytes]]:
    """A webhook of the test process; its address, and its certificate."""
    served = environment.authority.issue("localhost", (), ("localhost", "127.0.0.1"))
    file = environment.certificates / "webhook.pem"
    file.write_bytes(b"".join(served))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Webhook)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}", served[0]
    server.shutdown()
    thread.join()
    server.server_close()


def test_webhooks_that_envtest_installs_are_called(
    environment: Environment, webhook: tuple[str, bytes]
) -> None:
    admin = environment.user("admin", "system:masters")
    # As envtest's WebhookInstallOptions: a path with two slashes, and the certificate of the
    # server itself as its authority.
    address, certificate = webhook
    client = {"url": f"https://{address}//deny", "caBundle": b64encode(certificate).decode()}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    hook = {
        "name": "deny.example.com",
        "clientConfig": client,
        "rules": [rule | {"operations": ["CREATE"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    configuration = {"metadata": {"name": "deny"}, "webhooks": [hook]}
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    admin("POST", path, configuration)
    with pytest.raises(urllib.error.HTTPError) as refused:
        admin("POST", f"{NAMESPACES}/default/configmaps", {"metadata": {"name": "c"}})
    status = json.load(refused.value)
    assert (status["code"], status["reason"]) == (403, "Forbidden")
    assert status["message"].endswith("denied the request: Always denied")


def test_a_flag_that_does_not_exist_is_refused(terminal: Terminal) -> None:
    program = Path(terminal.kedge("envtest").stdout.strip()) / "kube-apiserver"
    done = subprocess.run([program, "--no-such=1"], capture_output=True, text=True, check=False)
    words = "kube-apiserver of kedge envtest: unknown flag: --no-such\n"
    assert (done.returncode, done.stderr) == (1, words)
