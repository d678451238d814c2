"""Test a controller against a real API, with a temporary cluster for the test module."""

import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kubernetes import client, config, watch

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


# The cluster: `kedge up` returns when it is ready.


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[client.CoreV1Api]:
    place: Path = tmp_path_factory.mktemp("cluster")
    which = ["--name=controller-test", f"--state={place}/state"]
    kubeconfig = f"{place}/kubeconfig"
    subprocess.run(
        ["kedge", "up", *which, "--store=memory", f"--kubeconfig={kubeconfig}"], check=True
    )
    yield client.CoreV1Api(config.new_client_from_config(kubeconfig))
    subprocess.run(["kedge", "down", *which, "--purge"], check=True)


@pytest.fixture(autouse=True)
def controller(api: client.CoreV1Api) -> Iterator[None]:
    stopped = threading.Event()
    thread = threading.Thread(target=run, args=(api, stopped))
    thread.start()
    yield
    stopped.set()
    thread.join()


# The tests: change an object and check the reaction of the controller.


def test_a_namespace_with_a_team_gets_a_config_map(api: client.CoreV1Api) -> None:
    metadata = client.V1ObjectMeta(name="shop", labels={"team": "apples"})
    api.create_namespace(client.V1Namespace(metadata=metadata))
    eventually(lambda: team(api, "shop") == "apples")


def test_a_change_of_team_is_followed(api: client.CoreV1Api) -> None:
    metadata = client.V1ObjectMeta(name="depot", labels={"team": "apples"})
    api.create_namespace(client.V1Namespace(metadata=metadata))
    eventually(lambda: team(api, "depot") == "apples")
    api.patch_namespace("depot", {"metadata": {"labels": {"team": "pears"}}})
    eventually(lambda: team(api, "depot") == "pears")


def team(api: client.CoreV1Api, namespace: str) -> str | None:
    try:
        return api.read_namespaced_config_map("team", namespace).data["team"]
    except client.ApiException as error:
        if error.status == 404:
            return None
        raise


def eventually(condition: Callable[[], bool], tries: int = 100) -> None:
    pause = threading.Event()
    for _ in range(tries):
        if condition():
            return
        pause.wait(0.05)
    raise AssertionError("this did not come true")
