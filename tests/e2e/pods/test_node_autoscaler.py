"""Nodes that come and go with the pods: `kedge up --nodes 1..3`."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from kedge.cli.cluster import process

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.conftest import Api, OwnCluster

Json = dict[str, Any]

SLOW = 90.0
"""Seconds: agents start, nodes are measured once in ten seconds, and pods end."""
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def deployment(name: str, replicas: int, cpu: str, **spec: Any) -> Json:
    resources = {"requests": {"cpu": cpu}}
    main = {"name": "main", "image": "host", "command": ["sleep", "1000"], "resources": resources}
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [main], **spec},
    }
    return {
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def near(node: str) -> Json:
    """A preference for a node."""
    rule = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    wish = {"weight": 100, "preference": {"matchExpressions": [rule]}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}


def nodes(api: Api) -> list[str]:
    return [each["metadata"]["name"] for each in api.get("/api/v1/nodes")["items"]]


def homes(api: Api, app: str) -> list[str]:
    """The nodes of the ready pods of a Deployment."""
    found = api.get(f"/api/v1/namespaces/default/pods?labelSelector=app%3D{app}")["items"]
    return sorted(
        each["spec"]["nodeName"]
        for each in found
        if "deletionTimestamp" not in each["metadata"]
        and any(
            one["type"] == "Ready" and one["status"] == "True"
            for one in each["status"].get("conditions", ())
        )
    )


def reasons(api: Api) -> set[tuple[str, str]]:
    events = api.get("/api/v1/events")["items"]
    return {(each["involvedObject"]["kind"], each["reason"]) for each in events}


def answers(api: Api) -> bool:
    try:
        return api.serves("/api/v1/nodes")
    except OSError:
        return False


def status(own: OwnCluster) -> Json:
    found: Json = json.loads(own.kedge("status", *own.which, "-o=json"))
    return found


@pytest.mark.timeout(240)
def test_a_node_comes_for_pods_that_do_not_fit_and_goes_when_it_is_not_needed(
    own_cluster: OwnCluster, eventually: Callable[..., Any]
) -> None:
    api = own_cluster.up("--nodes=1..3", "--scale-down-delay=5s").api
    assert (status(own_cluster)["leastNodes"], status(own_cluster)["mostNodes"]) == (1, 3)
    milli = int(api.get("/api/v1/nodes/node-1")["status"]["allocatable"]["cpu"]) * 600
    api.create(DEPLOYMENTS, deployment("big", 2, f"{milli}m"))
    eventually(lambda: homes(api, "big") == ["node-1", "node-2"], SLOW)
    assert ("Pod", "TriggeredScaleUp") in reasons(api)
    assert [each["name"] for each in status(own_cluster)["nodes"]] == ["node-1", "node-2"]
    api.create(DEPLOYMENTS, deployment("small", 1, "10m", affinity=near("node-2")))
    eventually(lambda: homes(api, "small") == ["node-2"], SLOW)

    # Both come back, and go on with what was begun.
    for part in ("server", "node-autoscaler"):
        found = process.running(own_cluster.state, part)
        assert found is not None
        os.kill(found.pid, signal.SIGKILL)
    eventually(lambda: answers(api), SLOW)
    api.delete(f"{DEPLOYMENTS}/big")
    eventually(lambda: nodes(api) == ["node-1"], SLOW)
    eventually(lambda: homes(api, "small") == ["node-1"], SLOW)
    assert ("Node", "ScaleDown") in reasons(api)
    assert ("Pod", "ScaleDown") in reasons(api)
    assert [each["name"] for each in status(own_cluster)["nodes"]] == ["node-1"]
    own_cluster.down()
    assert process.strays(own_cluster.state) == []
