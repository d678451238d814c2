"""binding, eviction, ephemeralcontainers, resize and what needs a node: seen from outside."""

import base64
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from kedge.testing.local_server import STRATEGIC, LocalServer

PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


async def make(server: LocalServer, name: str = "p", **spec: Any) -> Any:
    container = {
        "name": "c",
        "image": "i",
        "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}},
    }
    body = {"metadata": {"name": name, "labels": {"app": "web"}}}
    return await server.post(PODS, body | {"spec": {"containers": [container], **spec}})


def binding(node: str = "n1", **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", **meta}, "target": {"kind": "Node", "name": node}}


# Binding.


async def test_a_binding_assigns_the_pod(server: LocalServer) -> None:
    await make(server)
    answer = await server.call(
        "POST", f"{PODS}/p/binding", binding(annotations={"from": "scheduler"})
    )
    assert answer.status == 201
    assert answer.document == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": 201,
    }
    pod = await server.get(f"{PODS}/p")
    assert pod["spec"]["nodeName"] == "n1"
    assert pod["metadata"]["annotations"] == {"from": "scheduler"}
    assert pod["metadata"]["generation"] == 1
    [condition] = pod["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")


async def test_the_older_spelling_binds_too(server: LocalServer) -> None:
    await make(server)
    answer = await server.call("POST", "/api/v1/namespaces/default/bindings", binding())
    assert answer.status == 201
    assert (await server.get(f"{PODS}/p"))["spec"]["nodeName"] == "n1"


async def test_a_pod_is_bound_once(server: LocalServer) -> None:
    await make(server)
    await server.post(f"{PODS}/p/binding", binding())
    answer = await server.call("POST", f"{PODS}/p/binding", binding("n2"))
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message == (
        'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n1"'
    )
    assert (await server.get(f"{PODS}/p"))["spec"]["nodeName"] == "n1"


async def test_bindings_that_make_no_sense(server: LocalServer) -> None:
    made = await make(server)
    for body, code in (
        ({"metadata": {"name": "p"}}, 422),
        ({"metadata": {"name": "p"}, "target": {"kind": "Pod", "name": "n"}}, 422),
        ({"metadata": {"name": "other"}, "target": {"name": "n"}}, 400),
        ({"target": []}, 400),
        (binding(uid="11111111-1111-4111-8111-111111111111"), 409),
    ):
        assert (await server.call("POST", f"{PODS}/p/binding", body)).status == code
    assert (
        await server.call("POST", f"{PODS}/none/binding", {"target": {"name": "n"}})
    ).status == 404
    assert await server.get(f"{PODS}/p") == made
    await server.post(f"{PODS}/p/binding?dryRun=All", binding())
    assert await server.get(f"{PODS}/p") == made
    await server.post(f"{PODS}/p/binding", binding(uid=made["metadata"]["uid"]))


# Eviction.


async def running(server: LocalServer, ready: bool = True) -> None:
    await make(server, nodeName="n")
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    await server.merge(
        f"{PODS}/p/status", {"status": {"phase": "Running", "conditions": [condition]}}
    )


async def budget(server: LocalServer, name: str = "b", *, allowed: int, **status: Any) -> None:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    await server.post(BUDGETS, {"metadata": {"name": name}, "spec": spec})
    full = {
        "observedGeneration": 1,
        "disruptionsAllowed": allowed,
        "currentHealthy": 1,
        "desiredHealthy": 1,
        "expectedPods": 1,
        **status,
    }
    await server.merge(f"{BUDGETS}/{name}/status", {"status": full})


EVICTION = {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "p"}}


async def test_an_eviction_deletes_the_pod(server: LocalServer) -> None:
    await running(server)
    answer = await server.call(
        "POST", f"{PODS}/p/eviction", EVICTION | {"deleteOptions": {"gracePeriodSeconds": 5}}
    )
    assert (answer.status, answer.document["status"]) == (201, "Success")
    pod = await server.get(f"{PODS}/p")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 5


async def test_a_budget_pays_for_an_eviction(server: LocalServer) -> None:
    await running(server)
    await budget(server, allowed=1)
    await server.post(f"{PODS}/p/eviction", EVICTION)
    status = (await server.get(f"{BUDGETS}/b"))["status"]
    assert status["disruptionsAllowed"] == 0
    assert status["disruptedPods"] == {"p": "2030-01-01T00:00:00Z"}


async def test_an_exhausted_budget_blocks_an_eviction(server: LocalServer) -> None:
    await running(server)
    await budget(server, allowed=0)
    answer = await server.call("POST", f"{PODS}/p/eviction", EVICTION)
    assert (answer.status, answer.reason) == (429, "TooManyRequests")
    assert answer.message == "Cannot evict pod as it would violate the pod's disruption budget."
    [cause] = answer.document["details"]["causes"]
    assert cause["reason"] == "DisruptionBudget"
    assert cause["message"] == ("The disruption budget b needs 1 healthy pods and has 1 currently")
    assert "Retry-After" not in answer.headers
    assert "deletionTimestamp" not in (await server.get(f"{PODS}/p"))["metadata"]


async def test_a_budget_that_was_not_looked_at_yet_blocks(server: LocalServer) -> None:
    await running(server)
    await budget(server, allowed=1, observedGeneration=0)
    assert (await server.call("POST", f"{PODS}/p/eviction", EVICTION)).status == 429


async def test_an_unready_pod_costs_nothing_while_the_others_suffice(server: LocalServer) -> None:
    await running(server, ready=False)
    await budget(server, allowed=0)
    await server.post(f"{PODS}/p/eviction", EVICTION)
    assert "deletionTimestamp" in (await server.get(f"{PODS}/p"))["metadata"]
    assert "disruptedPods" not in (await server.get(f"{BUDGETS}/b"))["status"]


async def test_a_dry_eviction_spends_nothing(server: LocalServer) -> None:
    await running(server)
    await budget(server, allowed=1)
    await server.post(f"{PODS}/p/eviction?dryRun=All", EVICTION)
    assert (await server.get(f"{BUDGETS}/b"))["status"]["disruptionsAllowed"] == 1
    assert "deletionTimestamp" not in (await server.get(f"{PODS}/p"))["metadata"]


async def test_two_budgets_for_one_pod_are_too_many(server: LocalServer) -> None:
    await running(server)
    await budget(server, allowed=1)
    await budget(server, "b2", allowed=1)
    answer = await server.call("POST", f"{PODS}/p/eviction", EVICTION)
    assert answer.status == 500
    assert "more than one PodDisruptionBudget" in answer.message


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": [1]},
        {"metadata": {"name": "other"}},
        {"deleteOptions": [1]},
        {"deleteOptions": {"gracePeriodSeconds": "x"}},
        {"kind": "Pod"},
        {"deleteOptions": {"propagationPolicy": "Sometimes"}},
    ],
)
async def test_bad_evictions_are_refused(server: LocalServer, body: Any) -> None:
    await make(server)
    assert (await server.call("POST", f"{PODS}/p/eviction", body)).status in (400, 422)
    assert (await server.call("GET", f"{PODS}/p")).status == 200


async def test_a_missing_pod_cannot_be_evicted(server: LocalServer) -> None:
    assert (await server.call("POST", f"{PODS}/p/eviction", EVICTION)).status == 404


# Parts.


async def test_ephemeral_containers_are_added_and_nothing_else(server: LocalServer) -> None:
    await make(server)
    change = {
        "spec": {
            "ephemeralContainers": [{"name": "debug", "image": "busybox"}],
            "activeDeadlineSeconds": 5,
        }
    }
    url = f"{PODS}/p/ephemeralcontainers"
    answer = await server.call("PATCH", url, change, content_type=STRATEGIC)
    assert answer.status == 200, answer.text
    spec = answer.document["spec"]
    assert [container["name"] for container in spec["ephemeralContainers"]] == ["debug"]
    assert "activeDeadlineSeconds" not in spec
    removal = answer.document
    removal["spec"]["ephemeralContainers"] = []
    assert (await server.call("PUT", url, removal)).status == 422
    body = {"spec": {"ephemeralContainers": [{"name": "x", "image": "y"}]}}
    main = await server.call("PATCH", f"{PODS}/p", body, content_type=STRATEGIC)
    assert main.status == 422


async def test_resize_changes_resources_and_nothing_else(server: LocalServer) -> None:
    await make(server)
    url = f"{PODS}/p/resize"
    bigger = {"limits": {"cpu": "400m"}}
    change = {"spec": {"containers": [{"name": "c", "image": "other", "resources": bigger}]}}
    answer = await server.call("PATCH", url, change, content_type=STRATEGIC)
    assert answer.status == 200, answer.text
    [container] = answer.document["spec"]["containers"]
    assert container["image"] == "i"
    assert container["resources"]["limits"] == {"cpu": "400m"}
    equal = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
    change = {"spec": {"containers": [{"name": "c", "resources": equal}]}}
    refused = await server.call("PATCH", url, change, content_type=STRATEGIC)
    assert refused.status == 422


# Without nodes.


async def test_a_pod_that_is_nowhere_has_no_log_and_cannot_be_entered(server: LocalServer) -> None:
    await make(server)
    answer = await server.call("GET", f"{PODS}/p/log")
    assert (answer.status, answer.text) == (204, "")
    for part in ("exec", "attach", "portforward"):
        answer = await server.call("POST", f"{PODS}/p/{part}?command=ls")
        assert answer.status == 400
        assert answer.message == "pod p does not have a host assigned"
    assert (await server.call("GET", f"{PODS}/none/log")).status == 404


async def test_approval_changes_only_the_conditions(server: LocalServer) -> None:
    csrs = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "me")])
    builder = x509.CertificateSigningRequestBuilder().subject_name(name)
    signed = builder.sign(ed25519.Ed25519PrivateKey.generate(), None)
    request = base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()
    spec = {"request": request, "signerName": "example.com/x", "usages": ["client auth"]}
    answer = await server.call("POST", csrs, {"metadata": {"name": "c"}, "spec": spec})
    assert answer.status == 201, answer.text
    made = answer.document
    condition = {"type": "Approved", "status": "True", "reason": "r", "message": "m"}
    made["status"] = {"conditions": [condition], "certificate": "eA=="}
    made["spec"]["signerName"] = "example.com/other"
    put = await server.put(f"{csrs}/c/approval", made)
    assert put["status"]["conditions"][0]["type"] == "Approved"
    assert "certificate" not in put["status"]
    assert put["spec"]["signerName"] == "example.com/x"
    assert await server.get(f"{csrs}/c/approval") == put
