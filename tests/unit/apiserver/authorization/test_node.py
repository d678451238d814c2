from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kedge.api.core_v1.pod import pod
from kedge.api.core_v1.pod.pod import Pod
from kedge.apiserver.authorization import references
from kedge.apiserver.authorization.attributes import Attributes, of_path, of_resource
from kedge.apiserver.authorization.node import Graph, NodeAuthorizer, followed
from kedge.apiserver.authorization.references import Reference
from kedge.apiserver.request import User
from kedge.apiserver.route import ResourcePath
from kedge.testing.local_server import LocalServer
from kedge.web.message import HttpRequest

Question = Callable[[User, str], Attributes]

NODE = User("system:node:n1", ("system:nodes", "system:authenticated"))
SECRET = Reference("secrets", "red", "used")


def decoded(document: Any) -> Pod:
    found: Pod = pod.RESOURCE.decode(msgspec.json.encode(document))
    return found


def using(name: str, node: str, secret: str) -> Any:
    """A pod on a node, which uses one secret."""
    container = {"name": "main", "image": "host", "envFrom": [{"secretRef": {"name": secret}}]}
    spec: dict[str, Any] = {"containers": [container]}
    return {"metadata": {"name": name}, "spec": spec | ({"nodeName": node} if node else {})}


def test_every_question_of_the_table_is_answered_as_there(table: Callable[[str], Any]) -> None:
    graph, nodes = Graph(), table("node.yaml")
    for document in nodes.content["pods"]:
        found = decoded(document)
        if found.spec.nodeName:
            key = pod.RESOURCE.key(found.metadata.namespace, found.metadata.name)
            graph.put(key, found.spec.nodeName, references.of_pod(found))
    for document in nodes.content["volumes"]:
        graph.put_volume(document["metadata"]["name"], references.of_volume(document))
    for plural, bound in nodes.content["bound"].items():
        for name, node in bound.items():
            graph.put(f"{plural}/{name}", node, frozenset([Reference(plural, "", name)]))
    assert list(nodes.wrong(NodeAuthorizer(graph).decide)) == []


def test_a_node_reads_the_clock_of_a_cluster_for_tests_and_no_other_page() -> None:
    decide = NodeAuthorizer(Graph()).decide
    assert decide(of_path(NODE, "GET", "/testing/clock/course")).allowed
    assert not decide(of_path(NODE, "POST", "/testing/clock/course")).allowed
    assert not decide(of_path(NODE, "GET", "/testing/clock")).allowed
    assert not decide(of_path(User("joe"), "GET", "/testing/clock/course")).allowed


def test_a_node_sees_its_own_pods() -> None:
    graph = Graph()
    graph.put(pod.RESOURCE.key("red", "a"), "n1", frozenset())
    seen = Reference("pods", "red", "a")
    assert graph.sees("n1", seen)
    assert not graph.sees("n2", seen)
    assert not graph.sees("n1", Reference("pods", "red", "b"))
    graph.drop(pod.RESOURCE.key("red", "a"))
    assert not graph.sees("n1", seen)


def test_pods_of_one_template_share_their_references() -> None:
    one, same = (references.of_pod(decoded(using(name, "n1", "used"))) for name in "ab")
    assert Reference("secrets", "", "used") in one
    assert same is one


def test_long_names_are_not_kept_for_other_pods() -> None:
    long = "x" * (references.SHORT + 1)
    one, same = (references.of_pod(decoded(using(name, "n1", long))) for name in "ab")
    assert same == one
    assert same is not one


def test_a_secret_is_seen_until_the_last_pod_that_uses_it_goes() -> None:
    graph = Graph()
    graph.put("a", "n1", frozenset([SECRET]))
    graph.put("b", "n1", frozenset([SECRET]))
    graph.put("c", "n2", frozenset([SECRET]))
    graph.drop("a")
    assert graph.sees("n1", SECRET)
    graph.drop("b")
    assert not graph.sees("n1", SECRET)
    assert graph.sees("n2", SECRET)


def test_what_moves_to_another_node_is_seen_there_alone() -> None:
    graph = Graph()
    graph.put("a", "n1", frozenset([SECRET]))
    graph.put("a", "n2", frozenset([SECRET]))
    assert not graph.sees("n1", SECRET)
    assert graph.sees("n2", SECRET)


def test_nothing_is_left_of_pods_and_volumes_that_are_gone() -> None:
    graph = two_claims()
    graph.put_volume("disk", references.of_volume(bound("claim-1")))
    graph.put_volume("disk", None)
    for number in (1, 2):
        assert f"pod-{number}" in graph
        graph.drop(f"pod-{number}")
        assert f"pod-{number}" not in graph
    graph.drop("unknown")
    assert vars(graph) == vars(Graph())


def two_claims() -> Graph:
    """A graph with a pod on each of two nodes, each of which uses a claim."""
    graph = Graph()
    for number in (1, 2):
        claim = Reference("persistentvolumeclaims", "red", f"claim-{number}")
        graph.put(f"pod-{number}", f"n{number}", frozenset([claim]))
    return graph


def bound(claim: str) -> Any:
    """A volume that is bound to a claim and needs the secret."""
    csi = {"nodeStageSecretRef": {"namespace": "red", "name": "used"}}
    return {"spec": {"claimRef": {"namespace": "red", "name": claim}, "csi": csi}}


def test_a_secret_of_two_volumes_is_seen_until_the_last_of_them_goes() -> None:
    graph = two_claims()
    graph.put_volume("disk-1", references.of_volume(bound("claim-1")))
    graph.put_volume("disk-2", references.of_volume(bound("claim-2")))
    assert graph.sees("n1", SECRET)
    assert graph.sees("n2", SECRET)
    graph.put_volume("disk-1", None)
    assert not graph.sees("n1", SECRET)
    assert graph.sees("n2", SECRET)
    graph.put_volume("disk-2", None)
    assert not graph.sees("n2", SECRET)


def test_a_volume_bound_to_another_claim_is_seen_by_that_claims_node() -> None:
    graph = two_claims()
    graph.put_volume("disk", references.of_volume(bound("claim-1")))
    assert graph.sees("n1", SECRET)
    graph.put_volume("disk", references.of_volume(bound("claim-2")))
    assert not graph.sees("n1", SECRET)
    assert graph.sees("n2", SECRET)
    assert graph.sees("n2", Reference("persistentvolumes", "", "disk"))
    graph.put_volume("disk", None)
    assert not graph.sees("n2", SECRET)


async def test_nodes_see_what_is_bound_to_them_as_soon_as_it_is(
    server: LocalServer, question: Question
) -> None:
    api = server.app.api
    nodes = NodeAuthorizer(followed(api.cache, api.catalog))
    pods = "/api/v1/namespaces/default/pods"

    def allowed(text: str) -> bool:
        return nodes.decide(question(NODE, text)).allowed

    await server.post(pods, using("web", "", "used"))
    assert not allowed("get secrets used in default")
    target = {"target": {"kind": "Node", "name": "n1"}}
    await server.post(f"{pods}/web/binding", {"metadata": {"name": "web"}} | target)
    assert allowed("get secrets used in default")
    assert allowed("get pods web in default")
    await server.delete(f"{pods}/web?gracePeriodSeconds=0")
    assert not allowed("get secrets used in default")
    assert not allowed("get pods web in default")


async def test_a_container_that_is_added_later_adds_its_references(
    server: LocalServer, question: Question
) -> None:
    api = server.app.api
    pods = "/api/v1/namespaces/default/pods"
    await server.post(pods, using("web", "n1", "used"))
    nodes = NodeAuthorizer(followed(api.cache, api.catalog))
    asked = question(NODE, "get secrets late in default")
    assert not nodes.decide(asked).allowed
    debug = {"name": "debug", "image": "host", "envFrom": [{"secretRef": {"name": "late"}}]}
    await server.merge(
        f"{pods}/web/ephemeralcontainers", {"spec": {"ephemeralContainers": [debug]}}
    )
    assert nodes.decide(asked).allowed


async def test_attachments_and_volumes_are_followed(
    server: LocalServer, question: Question
) -> None:
    api = server.app.api
    nodes = NodeAuthorizer(followed(api.cache, api.catalog))
    attachments = "/apis/storage.k8s.io/v1/volumeattachments"
    asked = question(NODE, "get volumeattachments.storage.k8s.io a")
    spec = {"attacher": "x", "nodeName": "n1", "source": {"persistentVolumeName": "disk"}}
    await server.post(attachments, {"metadata": {"name": "a"}, "spec": spec})
    assert nodes.decide(asked).allowed
    await server.delete(f"{attachments}/a")
    assert not nodes.decide(asked).allowed


async def test_a_persistent_volume_is_followed(server: LocalServer, question: Question) -> None:
    api = server.app.api
    nodes = NodeAuthorizer(followed(api.cache, api.catalog))
    asked = question(NODE, "get persistentvolumes disk")
    claimed = {"name": "data", "persistentVolumeClaim": {"claimName": "claim"}}
    pods = using("web", "n1", "used")
    pods["spec"]["volumes"] = [claimed]
    await server.post("/api/v1/namespaces/default/pods", pods)
    assert not nodes.decide(asked).allowed
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "claimRef": {"namespace": "default", "name": "claim"},
        "hostPath": {"path": "/data"},
    }
    volumes = "/api/v1/persistentvolumes"
    await server.post(volumes, {"metadata": {"name": "disk"}, "spec": spec})
    assert nodes.decide(asked).allowed
    await server.delete(f"{volumes}/disk")
    assert not nodes.decide(asked).allowed


@pytest.mark.parametrize(
    ("selector", "is_allowed"),
    [
        ("kedge.dev/node=n1", True),
        ("kedge.dev/node%3Dn1,other", True),
        ("kedge.dev/node=n2", False),
        ("kedge.dev/node!=n2", False),
        ("kedge.dev/node in (n1,n2)", False),
        ("kedge.dev/node", False),
        ("=", False),
        ("", False),
    ],
)
def test_a_node_lists_volumes_with_its_own_label(selector: str, is_allowed: bool) -> None:
    query = f"labelSelector={selector}".replace(" ", "%20")
    http = HttpRequest("GET", "/api/v1/persistentvolumes", query, {}, b"")
    target = ResourcePath("", "v1", "persistentvolumes", "", "", "", "", False)
    for verb in ("list", "watch"):
        decision = NodeAuthorizer(Graph()).decide(of_resource(NODE, verb, target, http))
        assert decision.allowed is is_allowed
