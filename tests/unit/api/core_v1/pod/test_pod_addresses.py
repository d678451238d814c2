"""The representation of pods that nodes may see of other nodes."""

import msgspec

from kedge.api.core_v1.pod import pod_addresses
from kedge.testing.local_server import LocalServer

PODS = "/api/v1/namespaces/default/pods"


def test_only_what_network_policies_refer_to_is_left() -> None:
    pod = {
        "metadata": {
            "name": "a",
            "namespace": "x",
            "labels": {"app": "1"},
            "annotations": {"b": "c"},
        },
        "spec": {
            "nodeName": "n",
            "containers": [
                {
                    "name": "main",
                    "env": [{"name": "PASSWORD", "value": "secret"}],
                    "ports": [{"name": "www", "containerPort": 80}],
                }
            ],
        },
        "status": {"phase": "Running", "podIP": "10.0.0.1", "hostIP": "10.0.0.2"},
    }
    assert msgspec.json.decode(pod_addresses.reduced(msgspec.json.encode(pod))) == {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "a", "namespace": "x", "labels": {"app": "1"}},
        "spec": {"containers": [{"ports": [{"name": "www", "containerPort": 80}]}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1"},
    }


async def test_lists_and_watches_of_pods_have_it_and_nothing_else_does() -> None:
    container = {"name": "main", "image": "host", "env": [{"name": "A", "value": "hidden"}]}
    body = {"metadata": {"name": "a"}, "spec": {"containers": [container]}}
    async with LocalServer.running() as server:
        await server.post(PODS, body)
        listed = await server.call("GET", PODS, accept=pod_addresses.MEDIA_TYPE)
        assert listed.document["kind"] == "PodList"
        assert listed.document["items"][0]["spec"] == {"containers": [{}]}
        watch = await server.watch(f"{PODS}?watch=1", accept=pod_addresses.MEDIA_TYPE)
        (event,) = await watch.events()
        assert event["object"]["metadata"]["name"] == "a"
        assert event["object"]["spec"] == {"containers": [{}]}
        for path in (f"{PODS}/a", "/api/v1/namespaces/default/secrets"):
            refused = await server.call("GET", path, accept=pod_addresses.MEDIA_TYPE)
            assert refused.status == 406
