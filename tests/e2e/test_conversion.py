"""Custom resources whose versions a webhook converts, with a real kubectl."""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from kedge.apiserver import pki

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.e2e.conftest import Api, Kubectl

TEXT = {"type": "string"}


class ConversionWebhook:
    """Converts hosts: version v1 has host and port in one text, v2 has two fields."""

    def __init__(self, directory: Path) -> None:
        identity = pki.ensure(directory, ("127.0.0.1",))
        self.ca_bundle = base64.b64encode(identity.ca_pem).decode()
        self.failure = ""
        """What the webhook answers instead of objects; empty if it works."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._server.socket = identity.context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}/convert"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, review: dict[str, Any]) -> dict[str, Any]:
        asked = review["request"]
        response: dict[str, Any] = {"uid": asked["uid"]}
        if self.failure:
            response["result"] = {"status": "Failure", "message": self.failure}
        else:
            wanted = asked["desiredAPIVersion"]
            response["result"] = {"status": "Success"}
            response["convertedObjects"] = [_converted(each, wanted) for each in asked["objects"]]
        return {**review, "response": response}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                body = json.dumps(webhook.answer(review)).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


def _converted(document: dict[str, Any], wanted: str) -> dict[str, Any]:
    spec = document.get("spec") or {}
    if wanted.endswith("/v2") and "hostPort" in spec:
        host, _, port = spec["hostPort"].partition(":")
        spec = {"host": host, "port": port}
    elif wanted.endswith("/v1") and spec:
        spec = {"hostPort": f"{spec.get('host', '')}:{spec.get('port', '')}"}
    return {**document, "apiVersion": wanted, "spec": spec}


def _version(name: str, stored: str, *fields: str) -> dict[str, Any]:
    spec = {"type": "object", "properties": dict.fromkeys(fields, TEXT)}
    schema = {"type": "object", "properties": {"spec": spec}}
    columns = [
        {"name": each.upper(), "type": "string", "jsonPath": f".spec.{each}"} for each in fields
    ]
    return {
        "name": name,
        "served": True,
        "storage": name == stored,
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": columns,
    }


def definition(group: str, webhook: ConversionWebhook, stored: str = "v1") -> str:
    client = {"url": webhook.url, "caBundle": webhook.ca_bundle}
    return json.dumps(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"hosts.{group}"},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"plural": "hosts", "kind": "Host"},
                "versions": [
                    _version("v1", stored, "hostPort"),
                    _version("v2", stored, "host", "port"),
                ],
                "conversion": {
                    "strategy": "Webhook",
                    "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]},
                },
            },
        }
    )


def host(group: str, version: str, name: str = "a", **spec: str) -> str:
    head = {"apiVersion": f"{group}/{version}", "kind": "Host"}
    return json.dumps({**head, "metadata": {"name": name}, "spec": spec})


@pytest.fixture
def webhook(tmp_path: Path) -> Iterator[ConversionWebhook]:
    running = ConversionWebhook(tmp_path / "keys")
    yield running
    running.close()


@pytest.fixture
def group(api: Api, any_kubectl: Kubectl, webhook: ConversionWebhook) -> Iterator[str]:
    """The group in which there are hosts now."""
    group = f"x{any_kubectl.namespace.removeprefix('t-')}.example.com"
    any_kubectl("create -f -", input=definition(group, webhook))
    any_kubectl(f"wait --for=condition=Established crd/hosts.{group} --timeout=30s")
    yield group
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/hosts.{group}"
    if api.exists(path):
        api.delete(path)


def test_objects_are_read_listed_and_watched_in_both_versions(
    any_kubectl: Kubectl, group: str
) -> None:
    first, second = f"hosts.v1.{group}", f"hosts.v2.{group}"
    with any_kubectl.start(f"get {second} -w -o name -v=6") as lines:
        lines.until("watch=true")
        any_kubectl("create -f -", input=host(group, "v1", hostPort="here:80"))
        lines.until(f"host.{group}/a")
    any_kubectl("apply -f -", input=host(group, "v2", "b", host="there", port="81"))
    assert any_kubectl.json("get", second, "a")["spec"] == {"host": "here", "port": "80"}
    rows = [line.split()[:3] for line in any_kubectl.says(f"get {second}").splitlines()]
    assert rows == [["NAME", "HOST", "PORT"], ["a", "here", "80"], ["b", "there", "81"]]
    rows = [line.split()[:2] for line in any_kubectl.says(f"get {first}").splitlines()]
    assert rows == [["NAME", "HOSTPORT"], ["a", "here:80"], ["b", "there:81"]]


def test_server_side_apply_knows_the_owners_of_the_other_version(
    any_kubectl: Kubectl, group: str
) -> None:
    apply = "apply --server-side -f - --field-manager"
    any_kubectl(f"{apply} one", input=host(group, "v1", hostPort="here:80"))
    refused = any_kubectl.fails(f"{apply} two", input=host(group, "v2", host="there", port="80"))
    assert 'conflict with "one": .spec.hostPort' in refused
    any_kubectl(f"{apply} two", input=host(group, "v2", host="here", port="80"))
    forced = host(group, "v2", host="there", port="80")
    any_kubectl(f"{apply} two --force-conflicts", input=forced)
    stored = any_kubectl.json(f"get hosts.v1.{group} a --show-managed-fields")
    assert stored["spec"] == {"hostPort": "there:80"}
    assert [entry["manager"] for entry in stored["metadata"]["managedFields"]] == ["two"]


def test_objects_move_to_another_storage_version(
    any_kubectl: Kubectl,
    api: Api,
    group: str,
    webhook: ConversionWebhook,
    eventually: Callable[..., Any],
) -> None:
    any_kubectl("create -f -", input=host(group, "v1", hostPort="here:80"))
    any_kubectl("replace -f -", input=definition(group, webhook, "v2"))
    crd = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/hosts.{group}"
    eventually(lambda: api.get(crd)["status"]["storedVersions"] == ["v1", "v2"])

    def is_moved() -> bool:
        webhook.failure = ""
        live = any_kubectl("get", f"hosts.v2.{group}", "-o", "json").stdout
        any_kubectl("replace -f -", input=live)
        webhook.failure = "out of order"
        return any_kubectl(f"get hosts.v2.{group} a", check=False).returncode == 0

    eventually(is_moved)
    patch = json.dumps({"status": {"storedVersions": ["v2"]}})
    any_kubectl(
        "patch", "crd", f"hosts.{group}", "--subresource=status", "--type=merge", "-p", patch
    )
    assert any_kubectl.json(f"get hosts.v2.{group} a")["spec"] == {"host": "here", "port": "80"}


def test_a_broken_webhook_is_quoted_and_does_not_hold_the_definition(
    any_kubectl: Kubectl, group: str, webhook: ConversionWebhook
) -> None:
    any_kubectl("create -f -", input=host(group, "v1", hostPort="here:80"))
    webhook.failure = "out of order"
    told = f"conversion webhook for {group}/v1, Kind=Host failed: out of order"
    assert told in any_kubectl.fails(f"get hosts.v2.{group} a")
    assert told in any_kubectl.fails(f"get hosts.v2.{group}")
    refused = any_kubectl.fails("create -f -", input=host(group, "v2", "b", host="there"))
    assert f"conversion webhook for {group}/v2, Kind=Host failed: out of order" in refused
    assert any_kubectl.says(f"get hosts.v1.{group} -o name") == f"host.{group}/a"
    any_kubectl(f"delete crd hosts.{group} --timeout=30s")
