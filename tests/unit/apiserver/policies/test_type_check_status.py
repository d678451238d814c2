"""The type checks of policies, seen in their status."""

import asyncio
from typing import Any

import pytest

from kedge.machinery.clock import SystemClock
from kedge.testing.local_server import LocalServer

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"


def policy(*checks: dict[str, str], group: str = "apps", **spec: Any) -> dict[str, Any]:
    rule = {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": spec.pop("resources", ["deployments"]),
    }
    constraints = {"resourceRules": [rule]}
    return {
        "metadata": {"name": "p"},
        "spec": {"matchConstraints": constraints, "validations": list(checks), **spec},
    }


async def status(server: LocalServer, body: dict[str, Any]) -> Any:
    await server.post(POLICIES, body)
    await checked(server)
    return (await server.get(f"{POLICIES}/p"))["status"]


async def checked(server: LocalServer) -> None:
    """Wait for the thread that checks; on a busy machine it may get its turn late."""
    clock = SystemClock()
    deadline = clock.monotonic() + 120
    while clock.monotonic() < deadline:
        document = await server.get(f"{POLICIES}/p")
        seen = (document.get("status") or {}).get("observedGeneration")
        if seen == document["metadata"]["generation"]:
            return
        await server.settle()
        await asyncio.to_thread(lambda: None)
    raise AssertionError("not checked")


async def test_a_type_error_is_reported(server: LocalServer) -> None:
    wrong = {"expression": "object.spec.replicas > 'a'", "messageExpression": "'a ' + object.zz"}
    found = await status(server, policy(wrong))
    assert found["observedGeneration"] == 1
    first, second = found["typeChecking"]["expressionWarnings"]
    assert first == {
        "fieldRef": "spec.validations[0].expression",
        "warning": "apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for "
        "'_>_' applied to '(int, string)'\n | object.spec.replicas > 'a'\n"
        " | .....................^\n",
    }
    assert second["fieldRef"] == "spec.validations[0].messageExpression"
    assert "undefined field 'zz'" in second["warning"]


async def test_a_policy_without_errors(server: LocalServer) -> None:
    right = {"expression": "object.spec.replicas > 1 && object.metadata.labels['a'] == 'b'"}
    found = await status(server, policy(right))
    assert found == {"observedGeneration": 1, "typeChecking": {}}


async def test_kinds_are_checked_in_order(server: LocalServer) -> None:
    wrong = {"expression": "object.spec.zz == 1"}
    found = await status(server, policy(wrong, resources=["replicasets", "deployments"]))
    (warning,) = found["typeChecking"]["expressionWarnings"]
    deployments, replica_sets = warning["warning"].split("\n\n")
    assert deployments.startswith("apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field")
    assert replica_sets.startswith("apps/v1, Kind=ReplicaSet: ERROR")


@pytest.mark.parametrize("resources", [["deployments"], ["deployments", "replicasets"]])
async def test_the_published_type_errors(server: LocalServer, resources: list[str]) -> None:
    wrong = {"expression": "object.replicas > 1", "message": "must be replicated"}
    found = await status(server, policy(wrong, resources=resources))
    (warning,) = found["typeChecking"]["expressionWarnings"]
    assert warning["fieldRef"] == "spec.validations[0].expression"
    kinds = ["Deployment", "ReplicaSet"][: len(resources)]
    assert warning["warning"] == "\n".join(
        f"apps/v1, Kind={kind}: ERROR: <input>:1:7: undefined field 'replicas'\n"
        " | object.replicas > 1\n | ......^\n"
        for kind in kinds
    )


async def test_wildcards_are_not_checked(server: LocalServer) -> None:
    found = await status(server, policy({"expression": "object.spec.zz == 1"}, group="*"))
    assert found["typeChecking"] == {}


async def test_variables_have_types(server: LocalServer) -> None:
    variables = [{"name": "n", "expression": "object.spec.replicas"}]
    wrong = {"expression": "variables.n == 'a'"}
    found = await status(server, policy(wrong, variables=variables))
    (warning,) = found["typeChecking"]["expressionWarnings"]
    assert "applied to '(int, string)'" in warning["warning"]


async def test_the_schema_of_a_definition_contains_itself(server: LocalServer) -> None:
    wrong = {"expression": "object.spec.zz == 1"}
    group = "apiextensions.k8s.io"
    resources = ["customresourcedefinitions"]
    found = await status(server, policy(wrong, group=group, resources=resources))
    (warning,) = found["typeChecking"]["expressionWarnings"]
    assert "undefined field 'zz'" in warning["warning"]


async def test_the_core_group_has_an_empty_name(server: LocalServer) -> None:
    wrong = {"expression": "object.spec.zz == 1"}
    found = await status(server, policy(wrong, group="", resources=["pods"]))
    (warning,) = found["typeChecking"]["expressionWarnings"]
    assert warning["warning"].startswith("/v1, Kind=Pod: ERROR")
