"""Pods are watched only if there are policies."""

from kedge.node.policies.policy_watch import PolicyWatch
from kedge.testing.local_server import LocalServer

POLICIES = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"


async def test_the_first_policy_starts_the_watch_of_pods_and_namespaces() -> None:
    async with LocalServer.running() as server:
        spec = {"containers": [{"name": "main", "image": "host"}]}
        pods = "/api/v1/namespaces/default/pods"
        await server.post(pods, {"metadata": {"name": "a"}, "spec": spec})
        watch = PolicyWatch(server.client, server.clock)
        server.start(watch.run())
        await watch.synced()
        assert watch.are_policies_known
        assert (len(watch.pods), len(watch.namespaces)) == (0, 0)
        await server.post(POLICIES, {"metadata": {"name": "p"}, "spec": {"podSelector": {}}})
        await server.settle()
        await watch.synced()
        assert [each.metadata.name for each in watch.pods] == ["a"]
        assert watch.namespaces.get("default") is not None
