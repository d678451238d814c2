"""APIServices that name a Service: an extension server in a pod answers for a group."""

import base64
import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

Json = dict[str, Any]

pytestmark = pytest.mark.usefixtures("pod_network")

PROGRAM = Path(__file__).parent / "extension_server.py"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
PROXY = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
GROUP = "wardle.example.com"
VERSION = "v1alpha1"
NAME = f"{VERSION}.{GROUP}"
ROOT = f"/apis/{GROUP}/{VERSION}"


def available(api: Any, name: str = NAME) -> tuple[str, str, str]:
    """Status, reason and message of the condition."""
    conditions = api.get(f"{API_SERVICES}/{name}").get("status", {}).get("conditions", ())
    for each in conditions:
        if each["type"] == "Available":
            return each["status"], each["reason"], each["message"]
    return "", "", ""


class Extension:
    """An extension server of flunders."""

    def __init__(self, pod: Any) -> None:
        self.api = pod.api
        self.pods = pod.pods
        self.namespace = pod.namespace
        self.services = self.pods.path.replace("/pods", "/services")
        self.flunders = f"{ROOT}/namespaces/{pod.namespace}/flunders"
        self._pod = pod

    def run(self) -> None:
        """Start the server; returns when it is ready."""
        self._pod.run(PROGRAM, GROUP=GROUP)

    def expose(self) -> None:
        self._pod.expose()

    def register(self, **spec: Any) -> None:
        self._pod.register(GROUP, VERSION, **spec)

    def wait(self, reason: str = "Passed") -> str:
        """Return the message of the condition once it has this reason."""
        message: str = self._pod.wait(NAME, reason)
        return message

    def create(self, name: str) -> Json:
        flunder = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Flunder"}
        made: Json = self.api.create(self.flunders, {**flunder, "metadata": {"name": name}})
        return made


@pytest.fixture
def extension(extension_pod: Any) -> Extension:
    return Extension(extension_pod)


@pytest.fixture
def sample(extension: Extension) -> Extension:
    """A server that is ready and registered."""
    extension.run()
    extension.expose()
    extension.register()
    extension.wait()
    return extension


def connection(api: Any) -> http.client.HTTPSConnection:
    where = urlsplit(api.url)
    trust = ssl.create_default_context(cadata=api.ca_pem)
    return http.client.HTTPSConnection(where.hostname or "", where.port, timeout=20, context=trust)


def asked(api: Any, path: str, method: str = "GET", **headers: str) -> tuple[int, str, Any]:
    """Status, body and headers of a response, without any judgement."""
    client = connection(api)
    try:
        client.request(method, path, headers={"Authorization": f"Bearer {api.token}", **headers})
        answer = client.getresponse()
        return answer.status, answer.read().decode(), answer.headers
    finally:
        client.close()


def test_built_in_versions_are_local(
    api: Any, kubectl: Any, eventually: Callable[..., Any]
) -> None:
    eventually(lambda: api.exists(f"{API_SERVICES}/v1."))
    for name in ("v1.", "v1.apps", "v2.autoscaling", "v1.networking.k8s.io"):
        eventually(lambda name=name: available(api, name)[0] == "True")
        assert available(api, name) == ("True", "Local", "Local APIServices are always available")
    found = api.get(f"{API_SERVICES}/v1.apps")
    assert found["metadata"]["labels"] == {"kube-aggregator.kubernetes.io/automanaged": "onstart"}
    shown = kubectl("get apiservice v1.apps").stdout
    assert shown.splitlines()[1].split()[:3] == ["v1.apps", "Local", "True"]


def test_custom_resources_have_an_api_service_for_as_long_as_they_are_served(
    api: Any, namespace: str, eventually: Callable[..., Any]
) -> None:
    group = f"{namespace}.example.com"
    names = {"plural": "crates", "kind": "Crate", "singular": "crate", "listKind": "CrateList"}
    schema = {"openAPIV3Schema": {"type": "object"}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": group, "names": names, "scope": "Namespaced", "versions": [version]}
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    api.create(path, {"metadata": {"name": f"crates.{group}"}, "spec": spec})
    eventually(lambda: api.exists(f"{API_SERVICES}/v1.{group}"))
    eventually(lambda: available(api, f"v1.{group}")[1] == "Local")
    api.delete(f"{path}/crates.{group}")
    eventually(lambda: not api.exists(f"{API_SERVICES}/v1.{group}"))


def test_objects_of_an_extension_server_are_made_listed_and_deleted_by_kubectl(
    sample: Extension, kubectl: Any, eventually: Callable[..., Any]
) -> None:
    flunder = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Flunder",
        "metadata": {"name": "first"},
    }
    kubectl("create --validate=false -f -", input=json.dumps(flunder))
    assert kubectl("get flunders -o name").stdout.strip() == f"flunder.{GROUP}/first"
    assert kubectl("get fl first -o jsonpath={.metadata.uid}").stdout == "first"
    assert "no flunder none" in kubectl.fails("get", "flunder", "none")
    kubectl("delete flunder first")
    assert kubectl("get flunders -o name").stdout == ""


def test_the_condition_follows_service_endpoints_and_server(extension: Extension) -> None:
    extension.register()
    where = f'service/sample in "{extension.namespace}"'
    assert extension.wait("ServiceNotFound") == f"{where} is not present"
    assert asked(extension.api, ROOT)[:2] == (503, "service unavailable\n")
    assert asked(extension.api, extension.flunders)[:2] == (503, "service unavailable\n")
    extension.expose()
    message = extension.wait("MissingEndpoints")
    assert message == f'endpointslices for {where} have no addresses with port name ""'
    extension.run()
    assert extension.wait() == "all checks passed"
    extension.api.merge(f"{API_SERVICES}/{NAME}", {"spec": {"service": {"port": 1}}})
    assert extension.wait("ServicePortError") == f"{where} is not listening on port 1"
    extension.api.merge(f"{API_SERVICES}/{NAME}", {"spec": {"service": {"port": 7443}}})
    extension.wait()
    # A server whose certificate another authority has signed.
    stranger = {"spec": {"caBundle": base64.b64encode(extension.api.ca_pem.encode()).decode()}}
    extension.api.merge(f"{API_SERVICES}/{NAME}", stranger)
    assert "certificate verify failed" in extension.wait("FailedDiscoveryCheck")
    anyone = {"spec": {"caBundle": None, "insecureSkipTLSVerify": True}}
    extension.api.merge(f"{API_SERVICES}/{NAME}", anyone)
    extension.wait()


def test_discovery_lists_the_group_while_its_server_answers(
    sample: Extension, kubectl: Any, eventually: Callable[..., Any]
) -> None:
    api = sample.api
    groups = {each["name"]: each for each in api.get("/apis")["groups"]}
    version = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
    wanted = {"name": GROUP, "versions": [version], "preferredVersion": version}
    assert groups[GROUP] == wanted
    assert api.get(f"/apis/{GROUP}") == {"kind": "APIGroup", "apiVersion": "v1", **wanted}
    assert [each["name"] for each in api.get(ROOT)["resources"]] == ["flunders", "flunders/echo"]

    def aggregated() -> Json:
        accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        items = api("GET", "/apis", Accept=accept)["items"]
        return {each["metadata"]["name"]: each for each in items}.get(GROUP, {})

    [told] = aggregated()["versions"]
    assert (told["version"], told["freshness"]) == (VERSION, "Current")
    [flunders] = told["resources"]
    assert flunders["responseKind"]["kind"] == "Flunder"
    assert [each["subresource"] for each in flunders["subresources"]] == ["echo"]
    rows = kubectl(f"api-resources --api-group={GROUP} --no-headers").stdout.split()
    assert rows == ["flunders", "fl", f"{GROUP}/{VERSION}", "true", "Flunder"]
    index = api.get("/openapi/v3")["paths"]
    assert index[ROOT[1:]] == {"serverRelativeURL": f"/openapi/v3{ROOT}?hash=ABC123"}
    assert api.get(f"/openapi/v3{ROOT}?hash=ABC123")["info"] == {"title": GROUP}
    # Groups come in the order of their priority.
    names = [*groups]
    assert names[0] == "apiregistration.k8s.io"
    assert names.index("apps") < names.index(GROUP) < names.index("metrics.k8s.io")

    sample.pods.delete("sample")
    eventually(lambda: available(api)[0] == "False")
    [told] = aggregated()["versions"]
    assert told == {"version": VERSION, "resources": [], "freshness": "Stale"}
    api.delete(f"{API_SERVICES}/{NAME}")
    eventually(lambda: aggregated() == {})
    assert not api.exists(f"/apis/{GROUP}")
    assert not api.exists(ROOT)


def test_the_extension_server_learns_the_user_and_no_credential(sample: Extension) -> None:
    path = f"{sample.flunders}/any/echo"
    forged = {"X-Remote-User": "eve", "X-Remote-Group": "eves", "X-Remote-Extra-Scopes": "all"}
    status, body, headers = asked(sample.api, path, **forged)
    assert status == 200
    assert "Access-Control-Allow-Origin" not in headers
    told = json.loads(body)["headers"]
    users = [value for name, value in told if name == "x-remote-user"]
    groups = [value for name, value in told if name == "x-remote-group"]
    assert len(users) == 1
    assert "eve" not in users
    assert "system:masters" in groups
    assert "eves" not in groups
    assert not [name for name, _ in told if name in ("authorization", "x-remote-extra-scopes")]
    acting = {"Impersonate-User": "ann", "Impersonate-Group": "system:masters"}
    acting["Impersonate-Extra-Scopes"] = "read"
    told = json.loads(asked(sample.api, path, **acting)[1])["headers"]
    assert ["x-remote-user", "ann"] in told
    assert ["x-remote-extra-scopes", "read"] in told
    assert not [name for name, _ in told if name.startswith("impersonate")]


def test_roles_decide_before_the_request_is_forwarded(sample: Extension, kubectl: Any) -> None:
    sample.create("secret")
    api, namespace = sample.api, sample.namespace
    ann = {"Impersonate-User": "ann", "Impersonate-Group": "system:authenticated"}
    status, body, _ = asked(api, sample.flunders, **ann)
    assert status == 403
    assert f'cannot list resource \\"flunders\\" in API group \\"{GROUP}\\"' in body
    kubectl(f"create role reader --verb=get --resource=flunders.{GROUP}")
    kubectl("create rolebinding reader --role=reader --user=ann")
    assert asked(api, f"{sample.flunders}/secret", **ann)[0] == 200
    assert asked(api, f"{sample.flunders}/secret", "DELETE", **ann)[0] == 403
    # Paths that a server could read otherwise than the authorizer does.
    bent = (
        f"{sample.flunders}/secret%2fecho",
        f"{sample.flunders}/x/../secret",
        f"{sample.flunders}/%2e%2e/flunders",
        f"{ROOT}/namespaces//flunders",
        f"{ROOT}//namespaces/{namespace}/flunders",
        f"//apis/{GROUP}/{VERSION}/namespaces/{namespace}/flunders",
    )
    statuses = {path: asked(api, path, **ann)[0] for path in bent}
    assert set(statuses.values()) <= {400, 403, 404}, statuses
    admins = {path: asked(api, path)[0] for path in bent}
    assert set(admins.values()) <= {400, 404}, admins


def test_watches_are_streamed_and_protocols_upgraded(sample: Extension) -> None:
    client = connection(sample.api)
    token = {"Authorization": f"Bearer {sample.api.token}"}
    client.request("GET", f"{sample.flunders}?watch=true", headers=token)
    answer = client.getresponse()
    for name in ("one", "two"):
        sample.create(name)
        event = json.loads(answer.readline())
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", name)
    client.close()

    client = connection(sample.api)
    wish = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    key = {"Sec-WebSocket-Key": base64.b64encode(b"0123456789abcdef").decode()}
    client.request("GET", f"{sample.flunders}/any/echo", headers={**token, **wish, **key})
    assert client.sock is not None
    client.sock.sendall(bytes([0x81, 0x85, 0, 0, 0, 0]) + b"hello")
    reader = client.sock.makefile("rb")
    assert reader.readline().split()[1] == b"101"
    while reader.readline() != b"\r\n":
        pass
    assert reader.read(7)[2:] == b"HELLO"
    client.close()


def test_redirects_to_other_servers_are_refused(sample: Extension) -> None:
    status, body, headers = asked(sample.api, f"{sample.flunders}/away/moved")
    assert (status, headers.get("Location")) == (502, None)
    assert body == "the backend attempted to redirect this request, which is not permitted\n"


def test_a_server_that_does_not_answer_delays_nobody_else(
    sample: Extension, eventually: Callable[..., Any]
) -> None:
    api = sample.api
    stop = threading.Event()

    def wait_in_vain() -> None:
        client = connection(api)
        token = {"Authorization": f"Bearer {api.token}"}
        client.request("GET", f"{sample.flunders}/slow/sleep", headers=token)
        stop.wait(60)
        client.close()

    with ThreadPoolExecutor(130) as threads:
        for _ in range(130):
            threads.submit(wait_in_vain)
        try:
            path = f"{sample.flunders}/any/echo"
            eventually(lambda: asked(api, path)[0] == 429)
            began = time.monotonic()
            for _ in range(20):
                assert api.get("/api/v1/namespaces/default")["kind"] == "Namespace"
                assert api.get("/apis")["kind"] == "APIGroupList"
            assert time.monotonic() - began < 10
        finally:
            stop.set()
    eventually(lambda: asked(api, f"{sample.flunders}/any/echo")[0] == 200)


def test_namespaces_are_emptied_of_remote_objects_and_wait_for_a_server_that_is_away(
    sample: Extension, kubectl: Any, eventually: Callable[..., Any]
) -> None:
    api = sample.api
    other = f"{sample.namespace}-other"
    kubectl(f"create namespace {other}")
    path = f"{ROOT}/namespaces/{other}/flunders"
    flunder = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Flunder", "metadata": {"name": "left"}}
    api.create(path, flunder)
    api.delete(f"/api/v1/namespaces/{other}")
    eventually(lambda: not api.exists(f"/api/v1/namespaces/{other}"))
    assert api.get(path)["items"] == []

    kubectl(f"create namespace {other}")
    sample.pods.delete("sample")
    eventually(lambda: available(api)[0] == "False")
    api.delete(f"/api/v1/namespaces/{other}")

    def undiscovered() -> str:
        conditions = api.get(f"/api/v1/namespaces/{other}")["status"].get("conditions", ())
        for each in conditions:
            if (each["type"], each["status"]) == ("NamespaceDeletionDiscoveryFailure", "True"):
                return str(each["message"])
        return ""

    eventually(undiscovered)
    assert f"stale GroupVersion discovery: {GROUP}/{VERSION}" in undiscovered()
    api.delete(f"{API_SERVICES}/{NAME}")
    eventually(lambda: not api.exists(f"/api/v1/namespaces/{other}"), 60)


def test_an_api_service_is_edited_as_the_conformance_test_does(
    sample: Extension, eventually: Callable[..., Any]
) -> None:
    api, path = sample.api, f"{API_SERVICES}/{NAME}"
    before = api.get(f"{path}/status")
    assert before["status"]["conditions"][0]["message"] == "all checks passed"
    patched = api.merge(path, {"spec": {"versionPriority": 400}})
    assert patched["spec"]["versionPriority"] == 400
    assert int(patched["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"])
    added = {"type": "StatusUpdated", "status": "True", "reason": "E2E", "message": "from a test"}
    live = api.get(f"{path}/status")
    live["status"]["conditions"].append(added)
    api("PUT", f"{path}/status", live)
    again = {**added, "type": "StatusPatched"}
    conditions = [*api.get(path)["status"]["conditions"], again]
    api.merge(f"{path}/status", {"status": {"conditions": conditions}})
    types = [each["type"] for each in api.get(path)["status"]["conditions"]]
    assert types == ["Available", "StatusUpdated", "StatusPatched"]
    api.merge(path, {"metadata": {"labels": {"e2e": "patched"}}})
    sample.create("last")
    api("DELETE", f"{API_SERVICES}?labelSelector=e2e%3Dpatched")
    assert not api.exists(path)
    eventually(lambda: not api.exists(sample.flunders))


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"service": None, "insecureSkipTLSVerify": True}, "local APIServices may not have"),
        ({"insecureSkipTLSVerify": True}, "may not be true if caBundle is present"),
        ({"service": {"name": "x", "namespace": "y", "port": 70000}}, "port is not valid"),
        ({"service": {"namespace": "y"}}, "spec.service.name: Required value"),
    ],
)
def test_an_api_service_that_cannot_work_is_refused(
    extension: Extension, spec: Json, complaint: str
) -> None:
    with pytest.raises(Exception, match=complaint):
        extension.register(**spec)
    assert not extension.api.exists(f"{API_SERVICES}/{NAME}")
