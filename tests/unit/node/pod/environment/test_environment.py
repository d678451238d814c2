"""The variables of containers, from real config maps, secrets and services of a server."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kedge.api.builtin.service_networks import LOOPBACK_SERVICES, on_loopback
from kedge.api.core_v1.node_types import Node, NodeAddress, NodeStatus
from kedge.api.core_v1.pod.pod import RESOURCE
from kedge.api.core_v1.service_types import Service, ServicePort, ServiceSpec
from kedge.api.model import ObjectMeta
from kedge.machinery.quantity import Quantity
from kedge.node.pod.dependencies import ConfigFailure
from kedge.node.pod.environment.environment import EnvironmentVariables, service_variables
from kedge.node.pod.referenced_objects import ReferencedObjects
from kedge.testing.local_server import LocalServer
from kedge.testing.pods import new_pod


class Box:
    """The node."""

    exposed = ()
    node = Node(
        status=NodeStatus(
            addresses=[NodeAddress(type="InternalIP", address="192.0.2.7")],
            allocatable={"cpu": Quantity.parse("4")},
        )
    )


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with LocalServer.running() as running:
        yield running


@pytest.fixture
async def variables(server: LocalServer, tmp_path: Path) -> EnvironmentVariables:
    sources = ReferencedObjects(server.client, server.clock)
    server.start(sources.run())
    await server.post(
        "/api/v1/namespaces/default/configmaps",
        {"metadata": {"name": "cm"}, "data": {"b": "two", "a": "one", "odd.key": "x"}},
    )
    await server.post(
        "/api/v1/namespaces/default/secrets",
        {"metadata": {"name": "s"}, "stringData": {"password": "hush"}},
    )
    return EnvironmentVariables(sources, Box(), lambda pod, volume: tmp_path)


async def environment(variables: EnvironmentVariables, **container: Any) -> dict[str, str]:
    """Variables of a container, those of services left out."""
    found = await ordered(variables, **container)
    return {name: value for name, value in found if not name.startswith("KUBERNETES_")}


async def ordered(variables: EnvironmentVariables, **container: Any) -> list[tuple[str, str]]:
    pod = RESOURCE.from_document(
        {
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "i", **container}]},
        }
    )
    found = await variables.environment(pod, pod.spec.containers[0], ["10.1.1.1"])
    return [*found.own.items(), *found.services.items()]


def ref(kind: str, **fields: Any) -> dict[str, Any]:
    return {"name": "X", "valueFrom": {kind: fields}}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("$(A)", "1"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$(A)", "$$(A)"),
        ("$(B)$(A)", "two1"),
        ("$(C)", "$(C)"),
        ("x$(A)y$(NOPE)z", "x1y$(NOPE)z"),
        ("$(EMPTY)x", "x"),
        ("$(A", "$(A"),
        ("$A${A}$", "$A${A}$"),
        ("$$", "$"),
        ("a$$b", "a$b"),
        ("$()", "$()"),
        ("$((A))", "$((A))"),
        ("$(A )", "$(A )"),
        ("$(P)", "$(A)"),
        ("$(X)", "$(X)"),
    ],
)
async def test_references_to_earlier_variables_are_replaced(
    variables: EnvironmentVariables, value: str, expected: str
) -> None:
    env = [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "two"},
        {"name": "EMPTY", "value": ""},
        {"name": "P", "value": "$$(A)"},
        {"name": "V", "value": value},
        {"name": "X", "value": "later"},
    ]
    assert (await environment(variables, env=env))["V"] == expected


async def test_sources_come_first_sorted_and_are_overridden(
    variables: EnvironmentVariables,
) -> None:
    found = await environment(
        variables,
        envFrom=[
            {"configMapRef": {"name": "cm"}},
            {"prefix": "P_", "secretRef": {"name": "s"}},
            {"configMapRef": {"name": "none", "optional": True}},
        ],
        env=[{"name": "a", "value": "mine"}, {"name": "c", "value": "$(b)"}],
    )
    assert list(found.items()) == [
        ("a", "mine"),
        ("b", "two"),
        ("odd.key", "x"),
        ("P_password", "hush"),
        ("c", "two"),
    ]


@pytest.mark.parametrize(
    ("source", "value"),
    [
        (ref("configMapKeyRef", name="cm", key="a"), "one"),
        (ref("secretKeyRef", name="s", key="password"), "hush"),
        (ref("fieldRef", fieldPath="status.podIP"), "10.1.1.1"),
        (ref("fieldRef", fieldPath="status.hostIP"), "192.0.2.7"),
        (ref("resourceFieldRef", resource="limits.cpu"), "4"),
    ],
)
async def test_value_comes_from_where_it_is_said_to(
    variables: EnvironmentVariables, source: dict[str, Any], value: str
) -> None:
    assert (await environment(variables, env=[source]))["X"] == value


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (ref("configMapKeyRef", name="none", key="a"), 'configmap "none" not found'),
        (ref("secretKeyRef", name="none", key="a"), 'secret "none" not found'),
        (ref("configMapKeyRef", name="cm", key="z"), "couldn't find key z in ConfigMap default/cm"),
        (ref("secretKeyRef", name="s", key="z"), "couldn't find key z in Secret default/s"),
        (
            ref("resourceFieldRef", containerName="z", resource="limits.cpu"),
            "container z not found",
        ),
    ],
)
async def test_missing_source_says_what_is_missing(
    variables: EnvironmentVariables, source: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigFailure, match=why):
        await environment(variables, env=[source])


async def test_optional_source_that_is_missing_leaves_the_variable_as_it_was(
    variables: EnvironmentVariables,
) -> None:
    missing = ref("configMapKeyRef", name="cm", key="z", optional=True)
    env = [{"name": "X", "value": "before"}, missing]
    assert await environment(variables, env=env) == {"X": "before"}
    assert await environment(variables, env=[missing]) == {}


async def test_services_are_told_the_old_way_and_beaten_by_own_variables(
    server: LocalServer, variables: EnvironmentVariables
) -> None:
    port = {"port": 80, "name": "http-alt", "protocol": "UDP"}
    spec = {"ports": [port], "clusterIP": "10.96.7.7"}
    body = {"metadata": {"name": "my-web"}, "spec": spec}
    await server.post("/api/v1/namespaces/default/services", body)
    await server.settle()
    found = dict(await ordered(variables, env=[{"name": "MY_WEB_PORT", "value": "own"}]))
    assert found["MY_WEB_SERVICE_HOST"] == "10.96.7.7"
    assert found["MY_WEB_SERVICE_PORT"] == "80"
    assert found["MY_WEB_SERVICE_PORT_HTTP_ALT"] == "80"
    assert found["MY_WEB_PORT"] == "own"
    assert found["MY_WEB_PORT_80_UDP"] == "udp://10.96.7.7:80"
    assert found["MY_WEB_PORT_80_UDP_PROTO"] == "udp"
    assert found["KUBERNETES_SERVICE_HOST"] == "10.96.0.1"


def test_services_are_told_at_the_addresses_where_pods_find_them() -> None:
    service = Service(
        metadata=ObjectMeta(name="web", namespace="default"),
        spec=ServiceSpec(clusterIP="10.96.7.7", ports=[ServicePort(port=80)]),
    )
    found = service_variables(
        new_pod(), [service], partial(on_loopback, network=LOOPBACK_SERVICES[0])
    )
    assert found["WEB_SERVICE_HOST"] == "127.96.7.7"
    assert found["WEB_PORT"] == "tcp://127.96.7.7:80"


async def test_variables_of_the_resolver_yield_to_those_of_the_pod(
    server: LocalServer, tmp_path: Path
) -> None:
    sources = ReferencedObjects(server.client, server.clock)
    server.start(sources.run())
    found = {"LOCALDOMAIN": "default.svc.cluster.local", "RES_OPTIONS": "ndots:5"}
    variables = EnvironmentVariables(
        sources, Box(), lambda pod, volume: tmp_path, resolver_variables=lambda pod: found
    )
    own = [{"name": "RES_OPTIONS", "value": "ndots:1"}]
    assert await environment(variables, env=own) == {**found, "RES_OPTIONS": "ndots:1"}
