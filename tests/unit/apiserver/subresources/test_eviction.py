"""Evictions and the budgets that they are paid from, seen from outside."""

from typing import Any

import pytest

from kedge.testing.local_server import LocalAnswer, LocalServer

PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
ALLOWED = {"type": "DisruptionAllowed", "lastTransitionTime": "2029-01-01T00:00:00Z"}


async def pod(server: LocalServer, *, phase: str = "Running", ready: bool = True) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"}
    await server.post(PODS, {"metadata": {"name": "p", "labels": {"app": "web"}}, "spec": spec})
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    status = {"phase": phase, "conditions": [condition]}
    await server.merge(f"{PODS}/p/status", {"status": status})


async def budget(server: LocalServer, spec: Any = None, **status: Any) -> None:
    selector = {"matchLabels": {"app": "web"}}
    full = {"minAvailable": 1, "selector": selector, **(spec or {})}
    await server.post(BUDGETS, {"metadata": {"name": "b"}, "spec": full})
    usual = {"observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    await server.merge(
        f"{BUDGETS}/b/status", {"status": {"disruptionsAllowed": 0, **usual, **status}}
    )


async def evict(server: LocalServer, query: str = "", **options: Any) -> LocalAnswer:
    body: dict[str, Any] = {"metadata": {"name": "p"}}
    if options:
        body["deleteOptions"] = options
    return await server.call("POST", f"{PODS}/p/eviction{query}", body)


async def is_leaving(server: LocalServer) -> bool:
    return "deletionTimestamp" in (await server.get(f"{PODS}/p"))["metadata"]


def cause(answer: LocalAnswer) -> str:
    [found] = answer.document["details"]["causes"]
    assert found["reason"] == "DisruptionBudget"
    return str(found["message"])


async def test_an_evicted_pod_says_why_it_goes(server: LocalServer) -> None:
    await pod(server)
    assert (await evict(server)).status == 201
    conditions = (await server.get(f"{PODS}/p"))["status"]["conditions"]
    [found] = [each for each in conditions if each["type"] == "DisruptionTarget"]
    assert (found["status"], found["reason"], found["message"]) == (
        "True",
        "EvictionByEvictionAPI",
        "Eviction API: evicting",
    )


async def test_the_last_disruption_turns_the_condition(server: LocalServer) -> None:
    await pod(server)
    told = ALLOWED | {"status": "True", "reason": "SufficientPods", "message": ""}
    await budget(server, disruptionsAllowed=1, conditions=[told])
    assert (await evict(server)).status == 201
    [condition] = (await server.get(f"{BUDGETS}/b"))["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "InsufficientPods")
    assert condition["lastTransitionTime"] == "2030-01-01T00:00:00Z"


async def test_a_budget_that_is_not_up_to_date_asks_for_patience(server: LocalServer) -> None:
    await pod(server)
    await budget(server, disruptionsAllowed=1, observedGeneration=0)
    answer = await evict(server)
    assert (answer.status, answer.headers["Retry-After"]) == (429, "10")
    assert answer.document["details"]["retryAfterSeconds"] == 10
    assert cause(answer) == "The disruption budget b is still being processed by the server."


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (
            {"conditions": [ALLOWED | {"status": "False", "reason": "SyncFailed", "message": "x"}]},
            "does not allow evicting pods currently because it failed sync: x",
        ),
        ({}, "needs 1 healthy pods and has 1 currently"),
        (
            {
                "currentHealthy": 3,
                "conditions": [ALLOWED | {"status": "False", "reason": "Other", "message": "y"}],
            },
            "does not allow evicting pods currently (Other): y",
        ),
        ({"currentHealthy": 3}, "does not allow evicting pods currently"),
    ],
)
async def test_a_refusal_tells_its_reason(
    server: LocalServer, status: dict[str, Any], why: str
) -> None:
    await pod(server)
    await budget(server, **status)
    answer = await evict(server)
    assert (answer.status, cause(answer)) == (429, f"The disruption budget b {why}")
    assert not await is_leaving(server)


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
async def test_no_budget_speaks_for_pods_that_serve_nobody(server: LocalServer, phase: str) -> None:
    await pod(server, phase=phase)
    await budget(server)
    assert (await evict(server)).status == 201


@pytest.mark.parametrize(
    ("policy", "current", "status"),
    [
        ("IfHealthyBudget", 1, 201),
        ("IfHealthyBudget", 0, 429),
        (None, 0, 429),
        ("AlwaysAllow", 0, 201),
    ],
)
async def test_a_pod_that_is_not_ready_goes_if_the_policy_says_so(
    server: LocalServer, policy: str | None, current: int, status: int
) -> None:
    await pod(server, ready=False)
    await budget(server, {"unhealthyPodEvictionPolicy": policy}, currentHealthy=current)
    assert (await evict(server)).status == status


async def test_too_many_unconfirmed_evictions_are_refused(server: LocalServer) -> None:
    await pod(server)
    many = {f"p{i}": "2030-01-01T00:00:00Z" for i in range(2001)}
    await budget(server, disruptionsAllowed=1, disruptedPods=many)
    answer = await evict(server)
    assert answer.status == 403
    assert "DisruptedPods map too big" in answer.message


async def test_a_dry_eviction_changes_nothing_wherever_it_is_asked_for(server: LocalServer) -> None:
    await pod(server)
    await budget(server, disruptionsAllowed=1)
    before = await server.get(f"{PODS}/p"), await server.get(f"{BUDGETS}/b")
    assert (await evict(server, "?dryRun=All")).status == 201
    assert (await evict(server, dryRun=["All"])).status == 201
    assert (await evict(server, "?dryRun=All", dryRun=["All"])).status == 201
    assert before == (await server.get(f"{PODS}/p"), await server.get(f"{BUDGETS}/b"))


async def test_a_dry_eviction_is_refused_like_a_real_one(server: LocalServer) -> None:
    await pod(server)
    await budget(server)
    assert (await evict(server, "?dryRun=All")).status == 429


async def test_what_the_client_demands_of_the_pod_counts(server: LocalServer) -> None:
    await pod(server)
    answer = await evict(server, preconditions={"uid": "other"})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert not await is_leaving(server)
    version = (await server.get(f"{PODS}/p"))["metadata"]["resourceVersion"]
    assert (await evict(server, preconditions={"resourceVersion": version})).status == 201
    assert await is_leaving(server)


async def test_what_older_clients_send_is_understood(server: LocalServer) -> None:
    await pod(server)
    body = {"metadata": {"name": "p", "creationTimestamp": None}, "deleteOptions": None}
    assert (await server.call("POST", f"{PODS}/p/eviction", body)).status == 201


async def test_metadata_of_the_wrong_type_is_the_clients_fault(server: LocalServer) -> None:
    await pod(server)
    body = {"metadata": {"name": "p", "labels": 5}}
    assert (await server.call("POST", f"{PODS}/p/eviction", body)).status == 400
