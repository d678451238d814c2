"""Test a controller against a real API, in a cluster of kedge's pytest plugin."""

import threading
from collections.abc import Iterator

import pytest
from kubernetes import client, watch

import kedge

# The controller creates a ConfigMap with the team in every namespace with a label "team".


def run(api: client.CoreV1Api, stopped: threading.Event) -> None:
    """Watch the namespaces until the stop event is set."""
    while not stopped.is_set():
        stream = watch.Watch().stream(api.list_namespace, label_selector="team", timeout_seconds=1)
        for event in stream:
            if event["type"] != "DELETED":
                reconcile(api, event["object"])


def reconcile(api: client.CoreV1Api, namespace: client.V1Namespace) -> None:
    name, team = namespace.metadata.name, namespace.metadata.labels["team"]
    wanted = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="team"), data={"team": team})
    try:
        api.create_namespaced_config_map(name, wanted)
    except client.ApiException as error:
        if error.status != 409:
            raise
        api.patch_namespaced_config_map("team", name, {"data": {"team": team}})


# The cluster is a fixture of kedge's plugin. This controller needs no node.


@pytest.fixture(scope="session")
def kedge_settings() -> dict[str, object]:
    return {"nodes": 0}


@pytest.fixture(autouse=True)
def controller(kedge_cluster: kedge.Cluster) -> Iterator[None]:
    stopped = threading.Event()
    with kedge_cluster.kubernetes() as api:
        thread = threading.Thread(target=run, args=(client.CoreV1Api(api), stopped))
        thread.start()
        yield
        stopped.set()
        thread.join()


# The tests: change an object and wait for the reaction of the controller.


def test_a_namespace_with_a_team_gets_a_config_map(kedge_cluster: kedge.Cluster) -> None:
    kedge_cluster.apply(namespace("shop", "apples"))
    wait_for_team(kedge_cluster, "shop", "apples")


def test_a_change_of_team_is_followed(kedge_cluster: kedge.Cluster) -> None:
    kedge_cluster.apply(namespace("depot", "apples"))
    wait_for_team(kedge_cluster, "depot", "apples")
    kedge_cluster.apply(namespace("depot", "pears"))
    wait_for_team(kedge_cluster, "depot", "pears")


def namespace(name: str, team: str) -> dict[str, object]:
    metadata = {"name": name, "labels": {"team": team}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def wait_for_team(cluster: kedge.Cluster, name: str, team: str) -> None:
    cluster.wait("cm/team", lambda found: found["data"] == {"team": team}, namespace=name)
